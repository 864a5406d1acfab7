"""An environment server that is killed in the middle of a run and comes back on its port: the run goes on."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from sojourn.client.pool import EnvPool
from sojourn.client.session import EnvClient
from sojourn.evaluation import evaluate as evaluation
from sojourn.protocol.errors import TransportError
from sojourn.trainer import collecting
from sojourn.trainer.loop import Trainer
from sojourn.trainer.metrics import read_metrics
from tests.trainer.runs import Notes, config, save_model


class Server:
    """`sojourn serve textcraft` as a process, always on the same port."""

    def __init__(self) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Start, and wait until it listens."""
        command = [Path(sys.executable).with_name("sojourn"), "serve", "textcraft", "--port", str(self.port)]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if f":{self.port}" in line:
                return
        raise AssertionError("it did not start")

    def kill(self) -> None:
        if self.process:
            self.process.kill()
            self.process.wait()
            self.process.stdout.close()
            self.process = None


@pytest.fixture
def server():
    found = Server()
    found.start()
    yield found
    found.kill()


class Restarting(Notes):
    """Starts the server again when the run says that it waits for one."""

    def __init__(self, server: Server | None) -> None:
        super().__init__()
        self.server = server

    def on_note(self, text: str) -> None:
        super().on_note(text)
        if "waiting up to" in text and self.server:
            self.server.start()


@pytest.fixture
def settings(tmp_path):
    return config(
        save_model(tmp_path / "model"),
        rollout={
            "deterministic": False,
            "concurrency": 2,
            "patience_s": 60,
            "limits": {"attempts": 2, "retry_base_s": 0.01},
        },
        horizon={"type": "fixed", "turns": 2},
        trainer={"num_steps": 4},
    )


async def run(settings, server, path, notes):
    async with EnvPool([EnvClient(f"http://127.0.0.1:{server.port}")]) as envs:
        return await Trainer(settings, envs, run_dir=path, resume=False, observer=notes).run()


async def test_killed_in_the_middle_of_a_step(settings, server, tmp_path, monkeypatch):
    play, killed = collecting.collect, []

    async def collect(player, plans, **options):
        async for group in play(player, plans, **options):
            yield group
            if group.group_id.startswith("000002-") and not killed:
                killed.append(True)
                server.kill()

    monkeypatch.setattr(collecting, "collect", collect)
    notes = Restarting(server)
    assert (await run(settings, server, tmp_path / "run", notes)).steps == 4
    lines = list(read_metrics(tmp_path / "run/metrics.jsonl"))
    assert [line["rollout/dropped"] > 0 for line in lines] == [False, True, False, False]
    assert all(line["rollout/episodes"] + line["rollout/dropped"] == 8 for line in lines)
    assert "an environment server answers again" in notes.notes


async def test_killed_before_a_step_loses_nothing(settings, server, tmp_path, monkeypatch):
    play, killed = collecting.collect, []

    async def collect(player, plans, **options):
        if plans[0].group_id.startswith("000002-") and not killed:
            killed.append(True)
            server.kill()
        async for group in play(player, plans, **options):
            yield group

    monkeypatch.setattr(collecting, "collect", collect)
    notes = Restarting(server)
    assert (await run(settings, server, tmp_path / "run", notes)).steps == 4
    lines = list(read_metrics(tmp_path / "run/metrics.jsonl"))
    assert [line["rollout/episodes"] for line in lines] == [8, 8, 8, 8]
    assert "every episode of step 2 was lost to infrastructure: playing them again" in notes.notes


async def test_killed_before_an_evaluation_loses_nothing(settings, server, tmp_path, monkeypatch):
    play, killed = evaluation.collect, []

    async def collect(player, plans, **options):
        if player.engine.policy_version == 2 and not killed:
            killed.append(True)
            server.kill()
        async for group in play(player, plans, **options):
            yield group

    monkeypatch.setattr(evaluation, "collect", collect)
    evaluating = settings.model_copy(
        update={
            "trainer": settings.trainer.model_copy(update={"eval_every": 1}),
            "eval": settings.eval.model_copy(update={"episodes": 3, "horizon": 1}),
        }
    )
    notes = Restarting(server)
    summary = await run(evaluating, server, tmp_path / "run", notes)
    assert [(e.overall.episodes, e.overall.errors) for e in summary.evaluations.values()] == [(3, 0)] * 5
    assert "an environment server answers again" in notes.notes


async def test_a_server_that_does_not_come_back_ends_the_run(settings, server, tmp_path):
    impatient = settings.model_copy(update={"rollout": settings.rollout.model_copy(update={"patience_s": 0.1})})

    class Killing(Notes):
        def on_step(self, step, total, metrics):
            server.kill()

    with pytest.raises(TransportError, match="no environment server is left"):
        await run(impatient, server, tmp_path / "run", Killing())
    assert (tmp_path / "run/checkpoints/step_000001").is_dir(), "what was finished is saved"
