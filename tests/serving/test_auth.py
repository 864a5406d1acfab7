"""Who may do what."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from sojourn.protocol.errors import UsageError
from sojourn.serving.auth import check_bind, read_token
from sojourn.serving.config import ServingConfig

TOKENS = ServingConfig(token="all", step_token="few")


def bearer(token: str | None) -> dict[str, str]:
    return {} if token is None else {"authorization": f"Bearer {token}"}


REQUESTS = [
    ("POST", "/v1/sessions", {"env": "counter", "task": "counter_1"}),
    ("GET", "/v1/sessions/{id}", None),
    ("POST", "/v1/sessions/{id}/step", {"revision": 0, "action": "echo"}),
    ("POST", "/v1/steps", {"items": [{"id": "{id}", "revision": 0, "action": "echo"}]}),
    ("POST", "/v1/sessions/{id}/inject", {"revision": 1, "change": {"count": 1}}),
    ("POST", "/v1/sessions/{id}/snapshot", None),
    ("POST", "/v1/sessions/{id}/fork", {"count": 1}),
    ("POST", "/v1/sessions/{id}/renew", {}),
    ("GET", "/v1/sessions/{id}/actions", None),
    ("GET", "/v1/sessions/{id}/solution", None),
    ("POST", "/v1/sessions/{id}/reset", {"revision": 2}),
    ("DELETE", "/v1/sessions/{id}", None),
    ("GET", "/v1/envs", None),
    ("GET", "/v1/envs/counter/tasks?split=train", None),
    ("GET", "/v1/workers", None),
    ("GET", "/metrics", None),
]


@pytest.mark.parametrize(
    ("token", "allowed"), [(None, ()), ("wrong", ()), ("few", ("step",)), ("all", ("step", "control"))]
)
async def test_the_matrix(api, token, allowed):
    async with api(config=TOKENS) as http:
        http.headers.update(bearer("all"))
        session = (await http.opened())["id"]
        http.headers.pop("authorization")
        for method, path, body in REQUESTS:
            kind = "step" if path.endswith(("/step", "/steps")) else "control"
            if body is not None and "items" in body:
                body = {"items": [{**body["items"][0], "id": session}]}
            reply = await http.request(method, path.replace("{id}", session), json=body, headers=bearer(token))
            if kind in allowed:
                assert reply.status_code < 300, (path, reply.text)
            else:
                assert reply.status_code == (403 if token == "few" else 401), path
                assert reply.headers["content-type"] == "application/problem+json"
        for path in ("/health", "/ready", "/openapi.json"):
            assert (await http.get(path)).status_code == 200


@pytest.mark.parametrize("header", ["all", "Basic all", "Bearer", "Bearer ", "Bearer all2", "bearer \xe9", "Bearer al"])
async def test_headers_that_do_not_pass(api, header):
    async with api(config=TOKENS) as http:
        reply = await http.get("/v1/envs", headers={"authorization": header.encode("latin-1")})
        assert reply.status_code == 401
        assert reply.headers["www-authenticate"] == "Bearer"
        assert (await http.get("/v1/envs", headers={"authorization": "bearer all"})).status_code == 200


def test_only_loopback_is_served_without_a_token():
    for host in ("127.0.0.1", "localhost", "::1", "127.3.2.1"):
        check_bind(host, None)
    for host in ("0.0.0.0", "::", "192.168.1.2", "example.org", ""):
        with pytest.raises(UsageError, match="without a token"):
            check_bind(host, None)
        check_bind(host, TOKENS.token)


def test_tokens_come_from_a_file_or_the_environment(tmp_path, monkeypatch):
    monkeypatch.delenv("SOJOURN_TOKEN", raising=False)
    assert read_token(None) is None
    monkeypatch.setenv("SOJOURN_TOKEN", "from-env")
    assert read_token(None).get_secret_value() == "from-env"
    file = tmp_path / "token"
    file.write_text("from-file\n")
    assert read_token(file).get_secret_value() == "from-file"
    file.write_text(" \n")
    with pytest.raises(UsageError, match="empty"):
        read_token(file)
    with pytest.raises(UsageError, match="cannot read"):
        read_token(tmp_path / "none")


@pytest.mark.parametrize("tokens", [{"step_token": "a"}, {"token": ""}, {"token": "a", "step_token": "a"}])
def test_tokens_that_protect_nothing_are_refused(tokens):
    with pytest.raises(ValidationError):
        ServingConfig(**tokens)


def test_tokens_do_not_show():
    assert "all" not in repr(TOKENS)
    assert "few" not in str(TOKENS)
