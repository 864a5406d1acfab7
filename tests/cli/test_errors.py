"""What a user gets wrong is one line that says what to do, exit code 2, and never a traceback."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

import sojourn
from sojourn.cli.main import main
from sojourn.envs import registry
from sojourn.protocol.errors import TransportError
from tests.cli.conftest import Outcome, Run

WITHOUT = """
import sys

class Hiding:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        return None if name.partition(".")[0] == PACKAGE else self.finder.find_spec(name, path, target)

    def __getattr__(self, name):
        return getattr(self.finder, name)

sys.meta_path[:] = [Hiding(finder) for finder in sys.meta_path]
from sojourn.cli.main import main
sys.exit(main(sys.argv[1:]))
"""


def check(outcome: Outcome, *said: str) -> None:
    assert outcome.code == 2, outcome
    assert outcome.err.startswith("sojourn: ")
    assert outcome.err.count("\n") == 1, outcome.err
    assert "Traceback" not in outcome.err + outcome.out
    for words in said:
        assert words in outcome.err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["serv"], ["No such command", "sojourn --help"]),
        (["serve"], ["Missing argument 'ENV...'", "sojourn serve --help"]),
        (["serve", "textcraft", "--prt", "1"], ["No such option: --prt"]),
        (["serve", "textcraft", "--port", "high"], ["'--port'", "integer"]),
        (["serve", "textkraft"], ["'textkraft'", "did you mean 'textcraft'?"]),
        (["serve", "textcraft", "--env-config", "textcraft"], ["ENV.KEY=VALUE"]),
        (["serve", "textcraft", "--env-config", "babyai.x=1"], ["'babyai' is not among the served"]),
        (["serve", "textcraft", "--env-config", "textcraft.x=1"], ["textcraft", "x"]),
        (["serve", "textcraft", "--host", "0.0.0.0"], ["0.0.0.0", "--token-file"]),
        (["serve", "textcraft", "--token-file", "absent"], ["token file 'absent'"]),
        (["serve", "textcraft", "--lease-s", "-1"], ["lease_s"]),
        (["train", "absent.yaml"], ["absent.yaml", "demo"]),
        (["train", "demo", "optim.lrr=1"], ["optim.lrr", "did you mean 'optim.lr'?"]),
        (["train", "demo", "horizon.stages=10"], ["horizon.stages"]),
        (["train", "demo", "optim.lr"], ["'optim.lr'", "key.path=value"]),
        (["train", "demo", "optim.lr=["], ["optim.lr=[", "YAML"]),
        (["train", "demo", "envs.7.name=babyai"], ["envs.7"]),
        (["train", "demo", "model.name=no/such/model"], ["no/such/model", "sojourn-tiny"]),
        (["train", "demo", "envs.0.name=babbyai"], ["babbyai", "babyai"]),
        (["train", "babyai_sft", "data.0.episode=1"], ["data.0.episode", "did you mean 'data.0.episodes'?"]),
        (["train", "babyai_sft", "algorithm.beta=1"], ["unknown key 'algorithm.beta'"]),
        (["train", "babyai_sft", "data=[]"], ["data:"]),
        (["train", "babyai_sft", "envs=[]"], ["data.0.env: 'babyai' is not named in envs"]),
        (
            ["train", "babyai_sft", "envs=[{name: babyai, view: compact}, {name: babyai, view: stable}]"],
            ["data.0.env: entries of babyai differ in view or init"],
        ),
        (["train", "babyai_sft", "data.0={type: recordings, path: absent}", "--quiet"], ["absent"]),
        (["train", "babyai_sft", "data.0={type: conversations, path: absent}", "--quiet"], ["absent"]),
        (["train", "babyai_sft", "--rollout-only"], ["trainer.mode"]),
        (["train", "babyai_dpo", "trainer.eval_every=0"], ["pairs"]),
        (["train", "babyai_dpo", "data.0={type: conversations, path: x}"], ["dpo", "recordings"]),
        (["eval", "--model", "no/such/model", "--env", "textcraft", "--episodes", "1"], ["no/such/model"]),
        (["eval", "--model", "x", "--env", "textcraft", "--prompt", "some"], ["'some'", "full or none"]),
        (["eval", "--model", "x", "--env", "textcraft", "--format", "xml"], ["'xml'", "react, tagged"]),
        (["rollout", "--env", "textcraft", "--out", "x", "--oracle", "--group-size", "2"], ["--group-size"]),
        (["models", "add", "gpt"], ["'gpt'", "smollm2"]),
        (["doctor"], ["--env", "--all", "textcraft"]),
        (["doctor", "--env", "textkraft"], ["did you mean 'textcraft'?"]),
        (["envs", "--env-url", "localhost:8000"], ["localhost:8000", "http://"]),
    ],
)
def test_wrong_use(run: Run, arguments: list[str], said: list[str]) -> None:
    check(run(*arguments), *said)


def test_port_in_use(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        check(run("serve", "textcraft", "--port", port), f"127.0.0.1:{port}", "already in use", "--port")


def test_dead_server(run: Run, config: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as once:
        url = f"http://127.0.0.1:{once.getsockname()[1]}"
    check(run("train", config, "--env-url", url, "--quiet"), "no environment server is left", url)


@pytest.mark.parametrize(
    "command",
    [
        ["train", "demo"],
        ["eval", "--model", "sojourn-tiny", "--env", "textcraft"],
        ["rollout", "--oracle", "--env", "textcraft", "--episodes", "1", "--out", "recordings"],
        ["models", "list"],
        ["demo"],
    ],
)
def test_missing_extra(command: list[str], tmp_path: Path) -> None:
    check(without("torch", tmp_path, *command), "'torch'", "pip install 'sojourn[train]'")
    assert not list(tmp_path.rglob("*.jsonl"))


@pytest.mark.parametrize(
    ("package", "override"), [("peft", "model.lora={}"), ("tensorboard", "logging.tensorboard=true")]
)
def test_one_missing_package(package: str, override: str, config: Path, tmp_path: Path) -> None:
    said = without(package, tmp_path, "train", str(config), "--quiet", override)
    check(said, f"'{package}", "pip install 'sojourn[train]'")


def without(package: str, directory: Path, *command: str) -> Outcome:
    """The command in a process in which a package is not installed."""
    program = WITHOUT.replace("PACKAGE", repr(package))
    done = subprocess.run(
        [sys.executable, "-c", program, *command], capture_output=True, text=True, cwd=directory, check=False
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


@pytest.mark.parametrize("command", ["train", "demo"])
def test_unwritable_run_directory(run: Run, config: Path, tmp_path: Path, command: str) -> None:
    (tmp_path / "file").write_text("not a directory")
    arguments = ["train", config, "--quiet"] if command == "train" else ["demo", "--quiet"]
    check(run(*arguments, "--run-dir", tmp_path / "file" / "run"), "cannot write the run directory", "Not a directory")


def test_recordings_that_cannot_be_written(run: Run, model: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    check(run("rollout", "--env", "textcraft", "--model", model, "--out", tmp_path / "file" / "x"), "file/x")


def test_interrupt_and_bug(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def raising(error: BaseException) -> None:
        def names() -> list[str]:
            raise error

        monkeypatch.setattr(registry, "names", names)

    raising(KeyboardInterrupt())
    assert run("doctor") == (130, "", "sojourn: interrupted\n")
    raising(RuntimeError("boom\nbang"))
    outcome = run("doctor")
    assert (outcome.code, outcome.out) == (1, "")
    assert outcome.err.startswith("sojourn: RuntimeError: boom bang")
    log = Path(outcome.err.split(" is in ")[1].strip().rstrip(")"))
    assert "raise error" in log.read_text()
    log.unlink()
    assert "Traceback" in run("--debug", "doctor").err
    assert "Traceback" not in run("doctor").err


def test_error_inside_a_task_group(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def names() -> list[str]:
        raise ExceptionGroup("tasks", [ExceptionGroup("inner", [TransportError("no reply from http://x")])])

    monkeypatch.setattr(registry, "names", names)
    check(run("doctor"), "no reply from http://x")


def test_reader_that_leaves() -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "sojourn", "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        said = process.stderr.read()
    assert process.returncode == 1
    assert said == ""


def test_the_module_is_the_command() -> None:
    done = subprocess.run([sys.executable, "-m", "sojourn", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout == f"sojourn {sojourn.__version__}\n"


def test_no_command_teaches(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "sojourn demo" in capsys.readouterr().out
