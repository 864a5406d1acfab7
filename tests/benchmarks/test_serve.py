"""The load generator: what it counts, in each protocol, on a server of its own and on somebody else's."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.loadgen.dialects import Refused, path_of
from benchmarks.loadgen.load import Load
from benchmarks.loadgen.process import Running, sojourn_serve
from benchmarks.loadgen.scripts import LENGTH, Script, prepare

SERVE = Path(__file__).parents[2] / "benchmarks" / "serve.py"


@pytest.fixture(scope="module")
def server():
    with sojourn_serve("textcraft") as running:
        yield running


async def test_scripts_are_long_enough_and_end_nothing(server):
    scripts = await prepare(server.url, "textcraft", 3, "agentgym")
    assert {len(script.actions) for script in scripts} == {LENGTH}
    assert len({script.task for script in scripts}) == 3
    # Played again, every step is taken: none comes after an end, which would be a 409.
    cell = await Load(server, "textcraft", "agentgym", scripts, seconds=0.0).cell(3)
    assert (cell.steps, cell.resets) == (3 * LENGTH, 3)


@pytest.mark.parametrize("dialect", ["native", "agentgym", "openenv"])
async def test_each_dialect_is_measured(server, dialect):
    scripts = [Script("textcraft_7", ("inventory", "get 1 oak log", "inventory"))]
    there = Running(server.url + path_of(dialect, "textcraft"), server.pid)
    cell = await Load(there, "textcraft", "agentgym", scripts, dialect, seconds=0.0, warm_rounds=0).cell(2)
    assert (cell.mode, cell.concurrency, cell.steps, cell.resets) == ("unbatched", 2, 6, 2)
    assert cell.steps_per_s > 0
    assert 0 < cell.p50_ms <= cell.p99_ms
    assert cell.cpu_ms_per_step > 0
    assert cell.cpu_ms_per_reset > 0
    assert cell.rss_mb > 20


async def test_a_batch_is_as_many_steps(server):
    scripts = [Script("textcraft_7", ("inventory", "inventory"))]
    cell = await Load(server, "textcraft", "agentgym", scripts, seconds=0.0, warm_rounds=0).cell(5, batched=True)
    assert (cell.mode, cell.steps, cell.resets) == ("batched", 10, 5)
    there = Running(server.url + path_of("agentgym", "textcraft"), server.pid)
    with pytest.raises(Refused, match="no batched steps"):
        await Load(there, "textcraft", "agentgym", scripts, "agentgym").cell(1, batched=True)


@pytest.mark.parametrize("dialect", ["native", "openenv"])
async def test_a_refused_start_is_no_measurement(server, dialect):
    there = Running(server.url + path_of(dialect, "textcraft"), server.pid)
    with pytest.raises(Refused, match="999999"):
        await Load(there, "textcraft", "agentgym", [Script("textcraft_999999", ("inventory",))], dialect).cell(1)


async def test_an_error_that_comes_as_success_is_no_measurement(server):
    there = Running(server.url + path_of("agentgym", "textcraft"), server.pid)
    (seat,) = await Load(there, "textcraft", "agentgym", [Script("textcraft_7", ())], "agentgym").open(1)
    seat._id += 100_000
    with pytest.raises(Refused, match="not valid"):
        await seat.step("inventory")
    await seat.close()


def test_the_program_prints_its_keys():
    command = [sys.executable, str(SERVE), "--env", "textcraft", "--quick", "--json", "--concurrency", "1", "8"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    for key in ("cpu_ms_per_step", "cpu_ms_per_reset", "steps_per_s", "p50_ms", "p99_ms", "rss_mb"):
        assert found[key] > 0
    assert found["reference_cell"] == {"mode": "unbatched", "concurrency": 8}
    assert [(cell["mode"], cell["concurrency"]) for cell in found["cells"]] == [
        ("unbatched", 1),
        ("unbatched", 8),
        ("batched", 1),
        ("batched", 8),
    ]
    assert done.stdout.count("| unbatched |") == 2


def test_options_reach_the_server_that_is_started_and_no_other():
    command = [sys.executable, str(SERVE), "--env", "textcraft", "--quick", "--env-config", "colour=blue"]
    started = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert "environment 'textcraft': colour: Extra inputs are not permitted" in started.stderr
    elsewhere = subprocess.run([*command, "--url", "http://x"], capture_output=True, text=True, timeout=60, check=False)
    assert (elsewhere.returncode, "without --url" in elsewhere.stderr) == (2, True)


def test_somebody_elses_server_without_a_pid_has_no_cpu_time(server):
    url = server.url + path_of("agentgym", "textcraft")
    command = [sys.executable, str(SERVE), "--env", "textcraft", "--quick", "--json", "--concurrency", "2"]
    command += ["--url", url, "--dialect", "agentgym"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["cpu_ms_per_step"], found["rss_mb"]) == (None, None)
    assert found["steps_per_s"] > 0
