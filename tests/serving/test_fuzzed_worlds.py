"""What the schemas of the shipped worlds allow, and what they do not, is taken or refused: never a fault of ours."""

from __future__ import annotations

import json
from itertools import islice
from typing import Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis.generation import GenerationMode

from sojourn.envs import registry
from tests.serving.conftest import plain_api
from tests.serving.shipped import WORDS, service_of

EXAMPLES = 12
"""Of each environment, in one session: every episode starts where the one before left the server."""


def generated(schema: dict[str, Any], mode: GenerationMode) -> st.SearchStrategy[Any]:
    """Values that satisfy a JSON schema, or that break it somewhere."""
    schema = json.loads(json.dumps(schema).replace("#/$defs/", "#/components/schemas/"))
    parts = schema.pop("$defs", {})
    body = {"required": True, "content": {"application/json": {"schema": schema}}}
    document = {
        "openapi": "3.1.0",
        "info": {"title": "one schema", "version": "1"},
        "paths": {"/": {"post": {"requestBody": body, "responses": {"200": {"description": "taken"}}}}},
        "components": {"schemas": parts},
    }
    operation = schemathesis.openapi.from_dict(document)["/"]["POST"]
    bodies = operation.as_strategy(generation_mode=mode).map(lambda case: case.body)
    return bodies.filter(lambda body: not isinstance(body, bytes))


def well_told(reply: httpx.Response) -> bool:
    """Whether it was taken; a refusal says in one line why."""
    assert reply.status_code < 500, reply.text
    if reply.status_code < 300:
        return True
    assert reply.json()["status"] == reply.status_code
    assert "\n" not in reply.json()["detail"].strip()
    return False


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
@pytest.mark.parametrize("name", registry.names())
async def test_starts_and_changes_by_the_schema_are_taken_or_refused(name, mode):
    service = service_of(name)
    spec = service.spec
    tasks = [str(task) for split in spec.splits for task in islice(service.tasks().select(split), 3)]
    schemas = {what: schema for what, schema in (("init", spec.init_schema), ("change", spec.inject_schema)) if schema}
    drawn: list[tuple[str, Any]] = []

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(values=st.fixed_dictionaries({what: generated(schema, mode) for what, schema in schemas.items()}))
    def draw(values: dict[str, Any]) -> None:
        drawn.extend(values.items())

    draw()
    taken = dict.fromkeys(("init", "change"), 0)
    async with plain_api([service]) as http:
        session = (await http.post("/v1/sessions", json={"env": name, "task": tasks[0]})).json()
        path, revision = f"/v1/sessions/{session['id']}", session["revision"]
        for number, (what, value) in enumerate(drawn):
            if what == "init":
                task = tasks[number % len(tasks)]
                reply = await http.post(f"{path}/reset", json={"revision": revision, "task": task, "init": value})
            else:
                reply = await http.post(f"{path}/inject", json={"revision": revision, "change": value})
            if not well_told(reply):
                continue
            taken[what] += 1
            action = WORDS.get(name, ["inventory"])[0]
            played = await http.post(f"{path}/step", json={"revision": reply.json()["revision"], "action": action})
            assert well_told(played) or played.status_code == 409
            revision = (await http.get(path)).json()["revision"]
        await http.delete(path)
    if mode is GenerationMode.POSITIVE and "init" in schemas:
        assert taken["init"], "a schema of which nothing is taken is none"
