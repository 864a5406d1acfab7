"""Every metric that a run writes is explained on the page on metrics."""

from __future__ import annotations

import re
from pathlib import Path

from sojourn.trainer.loop import Trainer
from sojourn.trainer.metrics import read_metrics
from tests.trainer.runs import Notes, config, save_model, serving

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "metrics.md"


def patterns() -> list[str]:
    """Names in the tables; what stands in capitals stands for anything, and each may be told by environment."""
    tables = "\n".join(line.split("|")[1] for line in PAGE.read_text().splitlines() if line.startswith("| `"))
    names = re.findall(r"`([^`]+)`", tables + PAGE.read_text().replace("\n", " "))
    return [re.sub(r"[A-Z]{2,}", "[^/]+", name).replace("...", ".*") for name in names if "/" in name or "_" in name]


def test_every_name_in_the_code_is_on_a_page():
    """Also of the methods and switches that the run below does not have."""
    spaces = "critic|dpo|filter|gigpo|policy|sft|train|tree_grpo"
    sources = [p.read_text() for part in ("algorithms", "trainer") for p in (ROOT / "src/sojourn" / part).rglob("*.py")]
    names = {name for source in sources for name in re.findall(rf'"((?:{spaces})/[a-z_]+)"', source)}
    pages = PAGE.read_text() + (ROOT / "docs" / "offline-training.md").read_text()
    assert not sorted(name for name in names if f"`{name}`" not in pages)
    assert len(names) > 30


async def test_every_metric_is_on_the_page(tmp_path):
    settings = config(
        save_model(tmp_path / "model"),
        envs=[{"name": "textcraft", "view": "compact", "reward": ["score", "length_cost"]}, {"name": "babyai"}],
        algorithm={"name": "grpo", "preset": "agentgym_rl"},
        trainer={"num_steps": 2, "eval_every": 1},
        eval={"episodes": 2},
    )
    async with serving("textcraft", "babyai") as envs:
        await Trainer(settings, envs, run_dir=tmp_path / "run", resume=False, observer=Notes()).run()
    told = patterns()
    written = {name for line in read_metrics(tmp_path / "run/metrics.jsonl") for name in line} - {"step"}
    by_env = ("rollout/invalid", "rollout/repeated", "rollout/truncated")
    told += [f"{name}/[^/]+" for name in by_env]
    missing = sorted(name for name in written if not any(re.fullmatch(pattern, name) for pattern in told))
    assert not missing
    assert len(written) > 40
