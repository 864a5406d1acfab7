"""`sojourn search`: build an index of passages, ask it, serve it as Search-R1's retriever."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from sojourn.protocol.errors import UsageError

if TYPE_CHECKING:
    from sojourn.envs.search.retrieval.base import Hit, Retriever
    from sojourn.envs.search.world.build import Size

app = typer.Typer(help="Deep Search: build an index of passages, ask it, serve it.", no_args_is_help=True)

Index = Annotated[Path, typer.Argument(metavar="DIR", help="Index that `sojourn search index` made.")]
Kind = Annotated[str, typer.Option(help="bm25; dense or hybrid after `sojourn search encode`.")]


@app.command()
def index(
    corpus: Annotated[
        Path, typer.Argument(metavar="CORPUS.jsonl", help="Rows {id, contents} or {id, title, text}; may be .gz.")
    ],
    out: Annotated[Path, typer.Option(metavar="DIR", help="Where the index goes; an interrupted one is finished.")],
    threads: Annotated[
        int | None, typer.Option(min=1, help="Indexing threads (default: the cores, at most 8).")
    ] = None,
    memory_mb: Annotated[int, typer.Option(min=15, help="Memory of the writer; more makes fewer merges.")] = 256,
) -> None:
    """Build an index, reading line by line. Interrupted, the same command goes on from the last commit."""
    from sojourn.cli.counting import counting
    from sojourn.envs.search.retrieval.index import BuildOptions, build_index

    with counting("indexing", "passages") as tell:
        options = BuildOptions(
            threads=threads or min(8, os.cpu_count() or 1),
            writer_mb=memory_mb,
            on_progress=lambda step: tell(step.position, step.size, step.passages),
        )
        manifest = build_index(corpus, out, options)
    print(f"{manifest.whole.passages} passages of {corpus.name} in {out}")


@app.command()
def encode(index: Index) -> None:
    """Add vectors to a finished index, for dense and hybrid retrieval (extra `dense`). Interrupted, it goes on."""
    from sojourn.cli.counting import counting
    from sojourn.envs.search.retrieval.dense import MiniLM
    from sojourn.envs.search.retrieval.vectors import encode_index

    encoder = MiniLM()
    with counting("encoding", "passages") as tell:
        passages = encode_index(index, encoder, lambda done, of: tell(done, of, done))
    print(f"{passages} vectors ({encoder.name}) in {index}")


@app.command()
def query(
    index: Index,
    text: Annotated[list[str], typer.Argument(metavar="TEXT...", help="One query each.")],
    k: Annotated[int, typer.Option("-k", "--topk", min=1, help="Passages a query.")] = 3,
    kind: Kind = "bm25",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON line a query.")] = False,
) -> None:
    """Ask an index, to see what an agent would."""
    import orjson

    # What a shell passes on may be no UTF-8.
    text = [one.encode(errors="replace").decode() for one in text]
    found = asyncio.run(_ask(_open(index, kind), text, k))
    for asked, hits in zip(text, found, strict=True):
        if as_json:
            print(orjson.dumps({"query": asked, "hits": hits}).decode())
            continue
        if len(text) > 1:
            print(f"# {asked}")
        for rank, hit in enumerate(hits, start=1):
            print(f"{rank}. [{hit.id}] {hit.title}  ({hit.score:.3f})\n   {' '.join(hit.text.split())}")
        if not hits:
            print("nothing found")


@app.command()
def serve(
    index: Annotated[Path | None, typer.Argument(metavar="[DIR]", help="Index; or give --world.")] = None,
    world: Annotated[str | None, typer.Option(help="The embedded encyclopedia instead: small or large.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of the encyclopedia: 1, 2, 3 are train, val, test.")] = 1,
    kind: Kind = "bm25",
    topk: Annotated[int, typer.Option(min=1, max=100, help="Passages where a request does not say.")] = 3,
    host: Annotated[str, typer.Option(help="Address to listen on; another than loopback needs a token.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 takes a free one.")] = 8000,
    token_file: Annotated[Path | None, typer.Option(help="File with the token that requests must carry.")] = None,
    ready_file: Annotated[
        Path | None, typer.Option(help="Written with the address once requests are answered.")
    ] = None,
) -> None:
    """Serve Search-R1's POST /retrieve until interrupted, so that its trainer, verl's or SkyRL's can use the index."""
    from sojourn.cli.serve import write_ready
    from sojourn.envs.search.retrieval.service import create_app
    from sojourn.serving.auth import Access, Guard, check_bind, read_token
    from sojourn.serving.config import ServingConfig
    from sojourn.serving.worker import bind, run, run_app, url_of

    config = ServingConfig(token=read_token(token_file))
    check_bind(host, config.token)
    guard = Guard(config)
    if index is not None and world is None:
        retriever = _open(index, kind)
    elif world is not None and index is None and kind == "bm25":
        retriever = _embedded(world, seed)
    else:
        raise UsageError("say what to search: the directory of an index, or --world small without --kind, one of them")
    application = create_app(retriever, topk=topk, check=lambda given: guard.check(Access.CONTROL, given))

    def ready(url: str) -> None:
        print(f"serving {index or f'the {world} world'} at {url}/retrieve (Ctrl-C stops)", flush=True)
        if ready_file is not None:
            write_ready(ready_file, url)

    with bind(host, port) as sock:
        run(run_app(application, sock, lambda: ready(url_of(sock)), config.drain_s))


@app.command()
def audit(
    size: Annotated[str, typer.Option(help="Of the embedded encyclopedia: small or large.")] = "small",
    kinds: Annotated[str | None, typer.Option(help="Kinds of questions, with commas; all of them.")] = None,
    questions: Annotated[int, typer.Option(min=1, help="Of each kind.")] = 500,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object, a key a kind.")] = False,
) -> None:
    """Measure whether the embedded questions need search and whether search can answer them.

    For each kind: the scripted solution, the best guesses of another world, what one search gives, and chance. Exit
    code 1 when a figure is over its ceiling or the solution misses a question.
    """
    import json
    import sys

    from sojourn.envs.search.auditing import documents, run_audit, table

    audits = run_audit(size, kinds.split(",") if kinds else (), questions)
    print(json.dumps(documents(audits)) if as_json else table(audits))
    failures = [line for one in audits for line in one.failures]
    for line in failures:
        print(f"sojourn: {line}", file=sys.stderr)
    if failures:
        raise typer.Exit(1)


def _open(index: Path, kind: str) -> Retriever:
    from pydantic import TypeAdapter

    from sojourn.envs.search.retrieval.config import RetrieverConfig, open_retriever

    kinds = {"bm25": "local", "dense": "dense", "hybrid": "hybrid"}
    if kind not in kinds:
        raise UsageError(f"no --kind {kind!r} (known: {', '.join(kinds)})")
    config = TypeAdapter[RetrieverConfig](RetrieverConfig).validate_python({"type": kinds[kind], "index": index})
    return open_retriever(config)


def _embedded(size: str, seed: int) -> Retriever:
    """BM25 over a generated encyclopedia."""
    from sojourn.envs.search.retrieval.local import LocalRetriever
    from sojourn.envs.search.world import generate

    try:
        return LocalRetriever.from_passages(generate(cast("Size", size), seed).passages)
    except ValueError as error:
        raise UsageError(f"--world {size}: {error}") from error


async def _ask(retriever: Retriever, queries: list[str], k: int) -> list[list[Hit]]:
    async with retriever:
        return await retriever.search(queries, k)
