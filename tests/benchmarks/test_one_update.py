"""An update taken again from a run's own files is the one that the run took; others move the policy otherwise."""

import pytest
from benchmarks.one_update import main, moved

from sojourn.protocol.errors import UsageError
from sojourn.trainer.loop import Trainer
from sojourn.trainer.metrics import read_metrics
from tests.trainer.runs import Notes, config, save_model, serving


@pytest.fixture
async def run(tmp_path):
    """Three steps of a tiny policy, with every checkpoint and recording."""
    settings = config(save_model(tmp_path / "model"), trainer={"keep_checkpoints": 5})
    async with serving() as pool:
        await Trainer(settings, pool, run_dir=tmp_path / "run", resume=False, observer=Notes()).run()
    return tmp_path / "run"


async def test_it_is_the_run_s_own_update(run):
    logged = {line["step"]: line for line in read_metrics(run / "metrics.jsonl")}
    for step in (2, 3):
        assert moved(run, step, []).grad_norm == pytest.approx(logged[step]["train/grad_norm"], rel=1e-6)


async def test_a_shorter_step_moves_less(run, capsys):
    assert 0 < moved(run, 2, ["optim.lr=1e-4"]).kl < moved(run, 2, []).kl
    main([str(run), "2", "--vary", "trainer.minibatches=1"])
    head, _, own, varied = capsys.readouterr().out.splitlines()
    assert head.startswith("| step | what differs |")
    assert own.startswith("| 2 | nothing |")
    assert varied.startswith("| 2 | `trainer.minibatches=1` |")


async def test_what_was_not_kept_is_said(run, capsys):
    with pytest.raises(UsageError, match=r"step_000006 is not there: the run needs trainer.save_every=1"):
        moved(run, 7, [])
    with pytest.raises(SystemExit):
        main([str(run), "2", "--vary", "optim.lx=1"])
    assert "optim.lx" in capsys.readouterr().err
