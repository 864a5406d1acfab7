from sojourn.protocol.trajectory import StopReason
from sojourn.rollout.episode import run_episode
from tests.rollout.engine import turns

ASK = {"horizon": 8, "group_id": "g", "sibling": 0, "view": "full"}


async def test_success_is_recorded_turn_by_turn(make, stairs):
    t = await run_episode(make(turns("Thought: climb\nAction: up")), "stairs", "stairs_3", **ASK)
    assert (t.stop, t.success, t.score) == (StopReason.COMPLETED, True, 1.0)
    assert [turn.action for turn in t.turns] == ["up"] * 5
    assert abs(t.reward - 1.0) < 1e-9
    assert (t.family, t.env, t.env_version, t.engine, t.view) == ("odd", "stairs", "1", "scripted", "full")
    await stairs.empty()
