from __future__ import annotations

import json
import re

import pytest
import yaml

from sojourn.algorithms.grpo import GRPOConfig
from sojourn.protocol.errors import UsageError
from sojourn.rollout.few_shot import Exchange
from sojourn.rollout.horizon import Fixed, ScalingInter
from sojourn.trainer.config import TrainConfig, few_shots
from sojourn.trainer.config_reading import load_config, parse_config, parse_offline
from sojourn.trainer.resuming import changed_keys

MINIMAL = {"envs": [{"name": "textcraft"}], "horizon": {"type": "fixed", "turns": 10}}

KEYS = """
algorithm.clip_high algorithm.clip_low algorithm.drop_zero_advantage algorithm.dual_clip algorithm.entropy_coef
algorithm.kl_coef algorithm.kl_estimator algorithm.kl_horizon algorithm.kl_in algorithm.kl_target
algorithm.loss_aggregation algorithm.loss_constant algorithm.name algorithm.normalise_by_env algorithm.normalise_std
algorithm.objective algorithm.old_logprobs algorithm.preset algorithm.ratio_level algorithm.std_eps algorithm.tis_cap
algorithm.tis_floor algorithm.truncated
curriculum.type
engine.cache_mb engine.dtype engine.max_context engine.max_rows engine.prefill_tokens engine.reuse engine.threads
envs.0.dialect envs.0.eval_split envs.0.families envs.0.few_shot envs.0.init envs.0.name
envs.0.reward.0.name envs.0.reward.0.weight
envs.0.split envs.0.urls envs.0.view envs.0.weight
eval.concurrency eval.episodes eval.horizon eval.seed eval.split eval.temperature
horizon.by_env horizon.stages horizon.steps_per_stage horizon.type
logging.tensorboard logging.trajectories
model.autocast model.device model.dtype model.lora.alpha model.lora.r model.lora.target_modules model.name
name
optim.betas optim.eps optim.lr optim.max_grad_norm optim.warmup_steps optim.weight_decay
rollout.branch rollout.concurrency rollout.deterministic rollout.fork_turn rollout.format rollout.group_size
rollout.groups_per_step
rollout.limits.attempts rollout.limits.episode_deadline_s rollout.limits.generate_deadline_s rollout.limits.max_context
rollout.limits.max_episode_tokens rollout.limits.max_repeats rollout.limits.retry_base_s rollout.limits.step_deadline_s
rollout.patience_s rollout.prompt rollout.refill_rounds rollout.system_prompt
sampling.max_tokens sampling.stop_ids sampling.temperature sampling.top_k sampling.top_p
seed
trainer.epochs trainer.eval_every trainer.keep_checkpoints trainer.max_skipped_steps trainer.max_staleness
trainer.minibatches trainer.mode trainer.num_steps trainer.replay trainer.resume_fallback trainer.save_every
trainer.target_kl trainer.token_budget
"""
"""Frozen: people's files hold these. Add freely, rename never without a word in the changelog."""


def _paths(value, path=()):
    if isinstance(value, dict) and value:
        for key, inner in value.items():
            yield from _paths(inner, (*path, key))
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        yield from _paths(value[0], (*path, "0"))
    else:
        yield ".".join(path)


def test_the_keys_are_frozen():
    config = parse_config(
        {
            **MINIMAL,
            "horizon": {"type": "scaling_inter", "stages": [5, 9], "steps_per_stage": 3},
            "model": {"lora": {"r": 4}},
        }
    )
    assert sorted(_paths(config.dump())) == sorted(KEYS.split())


def test_a_dump_is_the_config_again():
    config = parse_config({**MINIMAL, "algorithm": {"name": "grpo", "preset": "grpo_paper", "clip_high": 0.3}})
    assert parse_config(yaml.safe_load(yaml.safe_dump(config.dump()))) == config
    assert isinstance(config.algorithm, GRPOConfig)
    assert (config.algorithm.kl_coef, config.algorithm.clip_high) == (0.04, 0.3)
    assert isinstance(config.horizon, Fixed)


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump(MINIMAL))
    return path


def test_overrides(file):
    config = load_config(
        file,
        [
            "optim.lr=5e-4",
            "envs.0.families=[depth1, depth2]",
            "model.lora.r=4",
            "horizon={type: scaling_inter, stages: [5, 9], steps_per_stage: 2}",
            "algorithm.clip_high=0.3",
            "rollout.deterministic=true",
            "eval.horizon=null",
        ],
    )
    assert config.optim.lr == 5e-4
    assert config.envs[0].families == ("depth1", "depth2")
    assert config.model.lora is not None
    assert config.model.lora.r == 4
    assert isinstance(config.horizon, ScalingInter)
    assert config.algorithm.clip_high == 0.3
    assert config.rollout.deterministic


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["optim.lrr=1"], "unknown key 'optim.lrr', did you mean 'optim.lr'?"),
        (["trainr.num_steps=1"], "unknown key 'trainr', did you mean 'trainer'?"),
        (["algorithm.clip_hihg=1"], "unknown key 'algorithm.clip_hihg', did you mean 'algorithm.clip_high'?"),
        (["envs.0.famlies=[a]"], "unknown key 'envs.0.famlies', did you mean 'envs.0.families'?"),
        (["rollout.limits.attempt=2"], "unknown key 'rollout.limits.attempt', did you mean 'rollout.limits.attempts'?"),
        (["model.lora.rank=2"], "unknown key 'model.lora.rank'"),
        (["horizon.turn=2"], "unknown key 'horizon.turn', did you mean 'horizon.turns'?"),
        (["horizon.type=fixd"], "horizon"),
        (["algorithm.name=ppoo"], "no algorithm 'ppoo'"),
        (["optim.lr=fast"], "optim.lr: Input should be a valid number, unable to parse string as a number, not 'fast'"),
        (["optim.lr=-1"], "optim.lr: Input should be greater than 0, not -1"),
        (["optim.lr=.inf"], "optim.lr: Input should be a finite number"),
        (["optim.betas=[2, 0.9]"], "optim.betas.0: Input should be less than 1, not 2"),
        (["envs.0.weight=.inf"], "envs.0.weight: Input should be a finite number"),
        (
            ["horizon.by_env={textcarft: 5}"],
            "horizon.by_env: 'textcarft' is not named in envs (named: textcraft)",
        ),
        (
            ["horizon={type: adaptive, start: 5, max_turns: 9, by_env: {babyai: {start: 3, max_turns: 4}}}"],
            "horizon.by_env: 'babyai' is not named in envs (named: textcraft)",
        ),
        (
            ["algorithm={name: agentevol, thresholds: {babyai: 0.1}}"],
            "algorithm.thresholds: 'babyai' is not named in envs (named: textcraft)",
        ),
        (["sampling.top_p=0.9"], "training samples with top_p 1 and top_k 0"),
        (["sampling.top_k=5"], "training samples with top_p 1 and top_k 0"),
        (["sampling.temperature=0"], "training needs a temperature above 0"),
        (["rollout.format=xml"], "no action format 'xml' (known: react"),
        (["envs=[]"], "envs"),
        (["envs.1.weight=2"], "no entry 'envs.1': the list has 1"),
        (["seed=1", "seed.x=2"], "'seed.x' leads into a value that has no keys"),
        (["optim.lr"], "not an override: 'optim.lr'"),
        (["optim.lr=[1"], "is not YAML"),
        (["name=a/b"], "name: "),
    ],
)
def test_errors_name_the_key_and_the_nearest(file, overrides, message):
    with pytest.raises(UsageError, match=re.escape(message)) as caught:
        load_config(file, overrides)
    assert "\n" not in str(caught.value)


def test_every_problem_is_told_at_once(file):
    overrides = ["optim.lr=x", "trainer.num_step=3", "algorithm.klcoef=1", "eval.episodes=0"]
    with pytest.raises(UsageError) as caught:
        load_config(file, overrides)
    for part in ("optim.lr", "trainer.num_step'", "'algorithm.kl_coef'", "eval.episodes"):
        assert part in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: [1", "is not YAML"),
        ("- 1", "not a mapping"),
        ("", "not a mapping"),
        ("envs: [{}]\nhorizon: {type: fixed, turns: 3}", "'envs.0.name' is missing"),
        ("envs: [{name: textcraft}]", "'horizon' is missing"),
    ],
)
def test_files_that_are_no_config(tmp_path, text, message):
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=re.escape(message)):
        load_config(path)


def test_no_file(tmp_path):
    with pytest.raises(UsageError, match="cannot read config"):
        load_config(tmp_path / "none.yaml")


def test_one_environment_pays_one_way():
    entries = [{"name": "a", "reward": "score"}, {"name": "a", "reward": "success"}]
    with pytest.raises(UsageError, match="must share their reward"):
        parse_config({**MINIMAL, "envs": entries})


def test_what_an_agentgym_server_cannot_do_is_refused_before_it_is_asked():
    foreign = {"name": "textcraft", "dialect": "agentgym"}
    with pytest.raises(UsageError, match=r"envs\.0.*dialect agentgym needs urls"):
        parse_config({**MINIMAL, "envs": [foreign]})
    with pytest.raises(UsageError, match=r"rollout\.fork_turn.*cannot fork textcraft"):
        parse_config({**MINIMAL, "envs": [{**foreign, "urls": ["http://x"]}], "rollout": {"fork_turn": 2}})


def test_determinism_is_synchronous():
    with pytest.raises(UsageError, match=r"needs trainer\.max_staleness 0"):
        parse_config({**MINIMAL, "rollout": {"deterministic": True}, "trainer": {"max_staleness": 1}})


def test_changed_keys():
    before = parse_config(MINIMAL).dump()
    after = parse_config(
        {
            "envs": [{"name": "textcraft", "weight": 2, "urls": ["http://x"]}],
            "horizon": {"type": "fixed", "turns": 11},
            "trainer": {"num_steps": 7, "minibatches": 2},
            "logging": {"tensorboard": False},
        }
    ).dump()
    assert changed_keys(before, after) == ["envs.0.weight", "horizon.turns", "trainer.minibatches"]
    assert changed_keys(before, before) == []
    lora = parse_config({**MINIMAL, "model": {"lora": {"r": 4}}}).dump()
    assert "model.lora.r" in changed_keys(before, lora)


def test_importing_it_names_every_section():
    assert set(TrainConfig.model_fields) == {key.split(".")[0] for key in KEYS.split()}


def test_a_model_by_name_alone(tmp_path):
    assert parse_config({**MINIMAL, "model": "smollm2"}).model.name == "smollm2"
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump({**MINIMAL, "model": "smollm2"}))
    assert load_config(path).model.name == "smollm2"
    config = load_config(path, ["model.lora.r=4", "optim.lr=0.1"])
    assert (config.model.name, config.model.lora.r) == ("smollm2", 4)
    config = load_config(path, ["model.dtype=bfloat16", "model=./mine"])
    assert (config.model.name, config.model.dtype) == ("./mine", "bfloat16")


def test_a_branching_group_has_one_shape():
    tree = {"where": "entropy", "trees": 2, "expansions": 1, "per_expansion": 3}
    rollout = parse_config({**MINIMAL, "rollout": {"branch": tree, "group_size": 8}}).rollout
    assert rollout.branching == rollout.branch
    rollout = parse_config({**MINIMAL, "rollout": {"fork_turn": 2, "group_size": 4}}).rollout
    assert rollout.branching is not None
    assert (rollout.branching.where, rollout.branching.turn, rollout.branching.size) == ("fixed", 2, 4)
    with pytest.raises(UsageError, match=r"branch makes groups of 8.*group_size 6 must be that"):
        parse_config({**MINIMAL, "rollout": {"branch": tree, "group_size": 6}})
    with pytest.raises(UsageError, match="fork_turn is short for a branch"):
        parse_config({**MINIMAL, "rollout": {"branch": tree, "fork_turn": 2}})
    foreign = {"name": "textcraft", "split": "0:9", "dialect": "agentgym", "urls": ["http://x"]}
    with pytest.raises(UsageError, match=r"rollout\.branch: AgentGym's protocol cannot fork textcraft"):
        parse_config({**MINIMAL, "envs": [foreign], "rollout": {"branch": tree, "group_size": 8}})


def test_a_list_is_not_blamed_for_its_items():
    with pytest.raises(UsageError) as error:
        parse_config({"envs": [{"name": "babyai", "reward": "nope"}], "horizon": {"type": "fixed", "turns": 3}})
    assert "envs.0.reward: no reward 'nope'" in str(error.value)
    assert "at least 1 item" not in str(error.value)


SHOWN = {"user": "goal: go to the red ball", "assistant": "Action: go to red ball 1"}


def test_example_turns_come_from_a_file_beside_the_config_and_stay_in_it(tmp_path, monkeypatch):
    (tmp_path / "shots").mkdir()
    messages = [{"role": role, "content": text} for role, text in SHOWN.items()]
    (tmp_path / "shots" / "a.jsonl").write_text(json.dumps({"messages": messages}))
    path = tmp_path / "run.yaml"
    path.write_text(yaml.safe_dump({**MINIMAL, "envs": [{"name": "babyai", "few_shot": "shots/a.jsonl"}]}))
    monkeypatch.chdir("/")
    config = load_config(path)
    assert config.envs[0].few_shot == (Exchange(**SHOWN),)
    assert few_shots(config.envs) == {"babyai": (Exchange(**SHOWN),)}
    assert config.dump()["envs"][0]["few_shot"] == [SHOWN]
    assert parse_config(yaml.safe_load(yaml.safe_dump(config.dump()))) == config
    # On the command line a path is where one stands.
    monkeypatch.chdir(tmp_path / "shots")
    assert load_config(path, ["envs.0.few_shot=a.jsonl"]) == config
    assert load_config(path, ["envs.0.few_shot=null"]).envs[0].few_shot is None


def test_a_resumed_run_is_shown_the_same_turns():
    def dump(text):
        entry = {"name": "babyai", "few_shot": [{**SHOWN, "assistant": text}]}
        return parse_config({**MINIMAL, "envs": [entry]}).dump()

    assert changed_keys(dump("Action: a"), dump("Action: a")) == []
    assert changed_keys(dump("Action: a"), dump("Action: b")) == ["envs.0.few_shot.0.assistant"]
    without = parse_config({**MINIMAL, "envs": [{"name": "babyai"}]}).dump()
    assert "envs.0.few_shot" in changed_keys(without, dump("Action: a"))


@pytest.mark.parametrize("algorithm", [{}, {"algorithm": {"name": "sft"}, "data": [{"type": "oracle", "env": "a"}]}])
def test_example_turns_that_do_not_fit(algorithm):
    def parse(entries, **more):
        if algorithm:
            return parse_offline({"envs": entries, **algorithm, **more})
        return parse_config({**MINIMAL, "envs": entries, **more})

    parse([{"name": "a", "few_shot": [SHOWN]}, {"name": "a", "few_shot": [SHOWN]}, {"name": "b"}])
    with pytest.raises(UsageError, match="share a name must share their few_shot"):
        parse([{"name": "a", "few_shot": [SHOWN]}, {"name": "a"}])
    with pytest.raises(UsageError, match=r"envs\.1\.few_shot: few-shot turn 1 answers 'go': No action found"):
        parse([{"name": "a"}, {"name": "b", "few_shot": [{"user": "x", "assistant": "go"}]}])
    parse([{"name": "a", "few_shot": [{"user": "x", "assistant": "<search>y</search>"}]}], rollout={"format": "tagged"})
    for wrong, why in (
        ("absent.jsonl", r"envs\.0\.few_shot: .*absent\.jsonl: No such file or directory$"),
        ("", r"envs\.0\.few_shot: expected a file of conversations, or a list of {user, assistant}, not ''$"),
        ({"user": "x"}, r"envs\.0\.few_shot: expected a file of conversations, or a list"),
        ([{"user": "x"}], r"few_shot\.0\.assistant"),
        ([{**SHOWN, "system": "x"}], r"few_shot\.0\.system"),
    ):
        with pytest.raises(UsageError, match=why) as told:
            parse([{"name": "a", "few_shot": wrong}])
        assert "\n" not in str(told.value)
