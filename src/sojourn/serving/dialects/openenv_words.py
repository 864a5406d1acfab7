"""OpenEnv 0.10's messages: what we read, what we write, and the schemas that tell a client so."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

import sojourn
from sojourn.protocol.env import EnvSpec
from sojourn.serving.requests import Change, Digest, Lease, Seed, TaskText

Reply = dict[str, Any]


class TextAction(BaseModel):
    """An action: one required string."""

    model_config = ConfigDict(extra="forbid")

    action: str = Field(description="What the agent says, in the environment's own action grammar")
    metadata: dict[str, Any] = Field(default_factory=dict)


class TextObservation(BaseModel):
    """An observation; reward and end stand beside it."""

    text: str = Field(description="What the agent reads")
    metadata: dict[str, Any] = Field(
        default_factory=dict, description="session_id, task, family, score, success, state_key, ..."
    )


class EpisodeState(BaseModel):
    """Where an episode is."""

    model_config = ConfigDict(extra="allow")

    episode_id: str | None = Field(default=None, description="The session, or the label that a reset gave it")
    step_count: int = Field(default=0, ge=0)


class Wish(BaseModel):
    """What a reset may say; anything else is ignored, as in the original."""

    model_config = ConfigDict(extra="ignore", strict=True)

    seed: Seed | None = None
    """With a task: the world's. Without: it chooses the task of the split, and is the world's too."""
    episode_id: str | None = Field(default=None, max_length=255)
    task: TaskText | None = None
    split: str | None = Field(default=None, max_length=64)
    families: list[str] = Field(default_factory=list)
    init: Change | None = None
    view: str | None = Field(default=None, max_length=64)
    lease_s: Lease | None = None


class HttpStep(BaseModel):
    """Body of `POST /step`. The original starts a new world for every one of them; ours belongs to a session."""

    model_config = ConfigDict(extra="ignore")

    action: dict[str, Any]
    episode_id: str = Field(max_length=255, description="`metadata.session_id` of the reset")


class ForkWish(BaseModel):
    model_config = ConfigDict(extra="forbid")

    count: int = Field(ge=1)


class InjectWish(BaseModel):
    model_config = ConfigDict(extra="forbid")

    change: Change


class RestoreWish(BaseModel):
    model_config = ConfigDict(extra="forbid")

    snapshot: Digest


class LeaseWish(BaseModel):
    model_config = ConfigDict(extra="forbid")

    lease_s: Lease | None = None


class Message(BaseModel):
    """What comes over the socket."""

    model_config = ConfigDict(extra="forbid")

    type: Literal["reset", "step", "state", "close", "snapshot", "restore", "fork", "inject", "lease"]
    data: dict[str, Any] = Field(default_factory=dict)


EXTRA_TYPES = "snapshot, restore {snapshot}, fork {count}, inject {change}, lease {lease_s}"


def seen(reply: Reply, session: str) -> Reply:
    """An observation without a reward: of create, reset, restore and inject."""
    observation = reply["observation"]
    about = {"session_id": session, "task": reply["task"], "family": reply["family"]}
    return _observed(observation["text"], None, bool(reply["ended"]), {**about, **observation["info"]})


def stepped(reply: Reply, session: str) -> Reply:
    """The result of an action."""
    marks = {"session_id": session, "terminated": reply["terminated"], "truncated": reply["truncated"]}
    done = bool(reply["terminated"] or reply["truncated"])
    return _observed(reply["observation"], reply["reward"], done, {**marks, **reply["info"]})


def _observed(text: str, reward: float | None, done: bool, metadata: Reply) -> Reply:
    # Both places, as the original has it: typed clients read the inner one, generic ones the outer one.
    return {
        "observation": {"text": text, "metadata": metadata},
        "reward": reward,
        "done": done,
        "metadata": metadata,
    }


def state(about: Reply, step_count: int, label: str | None = None) -> Reply:
    """The state of a session, from its description."""
    rest = {key: value for key, value in about.items() if key != "id"}
    return {"episode_id": label or about["id"], "step_count": step_count, "session_id": about["id"], **rest}


def schemas() -> Reply:
    """`GET /schema`."""
    return {
        "action": TextAction.model_json_schema(),
        "observation": TextObservation.model_json_schema(),
        "reset_observation": TextObservation.model_json_schema(),
        "state": EpisodeState.model_json_schema(),
    }


def metadata(spec: EnvSpec) -> Reply:
    """`GET /metadata`: exactly the original's fields; what we can do beyond it is told in the readme."""
    readme = "\n\n".join(
        [
            *(f"## View {view}\n\n{text}" for view, text in spec.action_help.items()),
            f"## Resets\n\nTake task, split ({', '.join(spec.splits)}), families, seed, init, view, lease_s.",
            f"## Further messages of the socket\n\n{EXTRA_TYPES}. A session lives by its lease: it ends when nobody "
            "uses it, whatever becomes of the socket, and /ws?session_id=ID takes it up again.",
        ]
    )
    return {
        "name": spec.name,
        "description": f"{spec.name}, a text environment served by Sojourn",
        "readme_content": readme,
        "version": spec.version,
        "author": None,
        "documentation_url": None,
    }


def document(env: str) -> Reply:
    """`GET /openapi.json` of the dialect: enough for a client to see what kind of server this is."""
    paths = {
        "/reset": {"post": {"summary": "Open a session, or reset that of episode_id"}},
        "/step": {"post": {"summary": "Act in the session of episode_id"}},
        "/state": {"get": {"summary": "Where the session of ?episode_id= is"}},
        "/schema": {"get": {"summary": "Schemas of action, observation and state"}},
        "/metadata": {"get": {"summary": "About the environment"}},
        "/health": {"get": {"summary": "Whether the server lives"}},
        "/mcp": {"post": {"summary": "JSON-RPC; no method is offered"}},
    }
    for methods in paths.values():
        for operation in methods.values():
            operation["responses"] = {"200": {"description": "Done"}}  # type: ignore[assignment]
    info = {"title": f"{env} in the OpenEnv 0.10 dialect", "version": sojourn.__version__}
    return {"openapi": "3.1.0", "info": info, "paths": paths}
