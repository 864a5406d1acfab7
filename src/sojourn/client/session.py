"""One environment server, and the sessions held on it."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self

import httpx

from sojourn.client.http import Connection, in_line
from sojourn.client.interface import TaskInfo, TaskPage
from sojourn.client.steps import StepBatcher
from sojourn.protocol.env import EnvSpec, Observation, Snapshot, Solution, StepResult
from sojourn.protocol.errors import Gone, NotFound, SnapshotInvalid, TransportError

_PAGE = 10_000
_MAX_UNLIMITED = 200_000


class EnvClient:
    """One server, perhaps of several workers: sessions are opened at its address and then used at their worker's.

    Args:
        base_url: `http://host:port`.
        token: bearer token, where the server wants one.
        timeout_s: silence after which a request counts as lost; above the server's deadline.
        transport: a seam for tests and in-process use, such as `httpx.ASGITransport(app)`.
    """

    def __init__(
        self,
        base_url: str,
        *,
        token: str | None = None,
        timeout_s: float = 60.0,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.connection = Connection(base_url, token, timeout_s, transport)
        self.base_url = self.connection.base_url
        self.open_sessions = 0
        """Sessions of this client that were opened and not yet closed."""
        self.steps = StepBatcher(self.connection)
        self._specs: dict[str, EnvSpec] | None = None
        self._workers: dict[str, str] = {}

    # -- discovery -------------------------------------------------------------------------------------------------

    async def specs(self) -> dict[str, EnvSpec]:
        """The environments of this server; asked once."""
        if self._specs is None:
            reply = (await self.connection.call("GET", "/v1/envs")).json()
            specs = (EnvSpec.model_validate(document) for document in reply["envs"])
            self._specs = {spec.name: spec for spec in specs}
        return self._specs

    async def spec(self, env: str) -> EnvSpec:
        """One environment; raises `NotFound`."""
        specs = await self.specs()
        if env not in specs:
            raise NotFound(f"{self.base_url} serves no environment {env!r} (known: {', '.join(specs)})")
        return specs[env]

    async def tasks(
        self, env: str, split: str, *, families: Sequence[str] | None = None, offset: int = 0, limit: int | None = None
    ) -> TaskPage:
        """Tasks of a split in the environment's fixed order.

        Args:
            env: the environment.
            split: one of `spec.splits`.
            families: only these families.
            offset: index of the first task wanted.
            limit: at most so many; None is all of them.

        Raises:
            ValueError: all of a split that is too long to list.
        """
        wanted = limit
        found: list[TaskInfo] = []
        while True:
            page = _PAGE if wanted is None else min(_PAGE, wanted - len(found))
            params = {"split": split, "offset": offset + len(found), "limit": page, "family": list(families or [])}
            reply = (await self.connection.call("GET", f"/v1/envs/{env}/tasks", params=params)).json()
            total = int(reply["total"])
            if limit is None and total > _MAX_UNLIMITED:
                raise ValueError(f"{env} has {total} tasks in {split!r}: give a limit")
            found += [TaskInfo(item["task"], item["family"]) for item in reply["tasks"]]
            if wanted is None:
                wanted = max(0, total - offset)
            if len(found) >= wanted or not reply["tasks"]:
                return TaskPage(total, found)

    async def capacity(self) -> int:
        """Sessions that the server can hold, all its workers together."""
        return sum(int(worker["max_sessions"]) for worker in await self._ask_workers())

    async def is_ready(self) -> bool:
        """Whether the server answers and takes sessions; one attempt, never raises."""
        return await self.connection.probe("/ready")

    def forget(self) -> None:
        """Ask anew what the server offers and where its workers are: it may have been replaced."""
        self._specs = None
        self._workers.clear()

    # -- sessions --------------------------------------------------------------------------------------------------

    async def create(
        self,
        env: str,
        task: str,
        *,
        seed: int | None = None,
        init: dict[str, Any] | None = None,
        view: str | None = None,
        lease_s: float | None = None,
    ) -> EnvSession:
        """A session at the first observation of a task."""
        return await self._create(env=env, task=task, seed=seed, init=init, view=view, lease_s=lease_s)

    async def restore(
        self, env: str, snapshot: Snapshot | str, *, view: str | None = None, lease_s: float | None = None
    ) -> EnvSession:
        """A session that continues a snapshot: one stored on this server, by digest, or the bytes themselves."""
        digest = await self.upload(snapshot) if isinstance(snapshot, Snapshot) else snapshot
        return await self._create(env=env, snapshot=digest, view=view, lease_s=lease_s)

    async def upload(self, snapshot: Snapshot, *, base: str | None = None) -> str:
        """Store a snapshot on the server; returns its digest."""
        headers = {"content-type": "application/octet-stream"}
        path = f"/v1/snapshots/{snapshot.digest}"
        await self.connection.call("PUT", path, base=base, content=snapshot.data, headers=headers)
        return snapshot.digest

    async def download(self, digest: str, *, base: str | None = None) -> Snapshot:
        """The bytes of a stored snapshot; raises `SnapshotInvalid` when they are not those of the digest."""
        response = await self.connection.call("GET", f"/v1/snapshots/{digest}", base=base)
        snapshot = Snapshot(response.headers.get("sojourn-env", ""), response.content)
        if snapshot.digest != digest:
            raise SnapshotInvalid(f"{self.base_url} sent other bytes than those of {digest}")
        return snapshot

    async def aclose(self) -> None:
        """Close the connections. Sessions left open live until their lease expires."""
        await self.steps.aclose()
        await self.connection.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    async def worker_url(self, session_id: str) -> str:
        """The address at which a session is used: its worker's own, where the server has several."""
        prefix = session_id.partition(".")[0]
        if prefix not in self._workers:
            workers = await self._ask_workers()
            if len(workers) > 1:
                self._workers.update({worker["id"]: worker["url"] for worker in workers})
            self._workers.setdefault(prefix, self.base_url)
        return self._workers[prefix]

    async def _create(self, **body: Any) -> EnvSession:
        headers = {"idempotency-key": uuid.uuid4().hex}
        given = {name: value for name, value in body.items() if value is not None}
        reply = (await self.connection.call("POST", "/v1/sessions", body=given, headers=headers)).json()
        return EnvSession(self, await self.worker_url(reply["id"]), reply)

    async def _ask_workers(self) -> list[dict[str, Any]]:
        workers: list[dict[str, Any]] = (await self.connection.call("GET", "/v1/workers")).json()["workers"]
        return workers


class EnvSession:
    """One world on a server. Its revision counts the mutations, so that a repeated request acts once.

    For one user at a time: two concurrent mutations carry the same revision, and one of them is refused (`Conflict`).
    """

    def __init__(self, client: EnvClient, base: str, reply: dict[str, Any]) -> None:
        self._client = client
        self._base = base
        self._closed = False
        self.id: str = reply["id"]
        self.env: str = reply["env"]
        self.task: str = reply["task"]
        self.family: str = reply["family"]
        self.view: str = reply["view"]
        self.lease_s: float = reply["lease_s"]
        self.revision: int = reply["revision"]
        self.observation = _observation(reply["observation"])
        """What create, reset, inject or restore gave; a step returns its own."""
        client.open_sessions += 1

    async def reset(
        self, task: str | None = None, *, seed: int | None = None, init: dict[str, Any] | None = None
    ) -> Observation:
        """Start a task from nothing (None: the session's own task)."""
        body = {"task": task, "seed": seed, "init": init}
        return await self._mutate("reset", {name: value for name, value in body.items() if value is not None})

    async def step(self, action: str) -> StepResult:
        """Act; steps of one tick travel in one request."""
        result = await self._client.steps.step(self._base, self.id, self.revision, action)
        self.revision = result["revision"]
        return StepResult(
            result["observation"], result["reward"], result["terminated"], result["truncated"], result["info"]
        )

    async def inject(self, change: dict[str, Any]) -> Observation:
        """Change the world in the middle of an episode; raises `InvalidInit`."""
        return await self._mutate("inject", {"change": change})

    async def snapshot(self) -> str:
        """Freeze the present state on the server; returns its digest."""
        digest: str = (await self._post("snapshot")).json()["digest"]
        return digest

    async def fetch_snapshot(self, digest: str) -> Snapshot:
        """The bytes of a snapshot, to keep or to take to another server."""
        return await self._client.download(digest, base=self._base)

    async def restore(self, snapshot: Snapshot | str) -> Observation:
        """Put the session back to a snapshot."""
        if isinstance(snapshot, Snapshot):
            digest = await self._client.upload(snapshot, base=self._base)
        else:
            digest = snapshot
        try:
            return await self._mutate("restore", {"snapshot": digest})
        except (NotFound, Gone):
            if isinstance(snapshot, Snapshot) or self._base == self._client.base_url:
                raise
        # Another worker of the same server may hold it.
        await self._client.upload(await self._client.download(digest), base=self._base)
        return await self._mutate("restore", {"snapshot": digest})

    async def fork(self, count: int) -> list[EnvSession]:
        """`count` sessions that stand where this one stands, and go their own ways."""
        headers = {"idempotency-key": uuid.uuid4().hex}
        response = await self._client.connection.call(
            "POST", self._path("fork"), base=self._base, body={"count": count}, headers=headers
        )
        return [EnvSession(self._client, self._base, reply) for reply in response.json()["sessions"]]

    async def actions(self) -> list[str] | None:
        """Actions that the world would take now, or None when it cannot list them."""
        found: list[str] | None = (await self._get("actions")).json()["actions"]
        return found

    async def solution(self) -> Solution:
        """The scripted solution from here; waits in line where working it out takes the server long.

        Raises:
            NotSupported: there is none.
            TooMany: the server has others to work out for longer than five minutes.
        """
        reply = (await in_line(lambda: self._get("solution"))).json()
        return Solution(reply["actions"], reply["thoughts"])

    async def renew(self) -> None:
        """Extend the lease without acting."""
        await self._client.connection.call("POST", self._path("renew"), base=self._base, body={})

    async def close(self) -> None:
        """Give the world back. Closing twice, or after the server forgot the session, is no error.

        A server that cannot be reached is none either: the lease reclaims the session.
        """
        if self._closed:
            return
        self._closed = True
        self._client.open_sessions -= 1
        try:
            await self._client.connection.call("DELETE", self._path(), base=self._base)
        except (NotFound, Gone, TransportError):
            return

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def _mutate(self, verb: str, body: dict[str, Any]) -> Observation:
        body["revision"] = self.revision
        response = await self._client.connection.call("POST", self._path(verb), base=self._base, body=body)
        reply = response.json()
        self.revision, self.task, self.family = reply["revision"], reply["task"], reply["family"]
        self.observation = _observation(reply["observation"])
        return self.observation

    async def _get(self, verb: str) -> httpx.Response:
        return await self._client.connection.call("GET", self._path(verb), base=self._base)

    async def _post(self, verb: str) -> httpx.Response:
        return await self._client.connection.call("POST", self._path(verb), base=self._base)

    def _path(self, verb: str = "") -> str:
        return f"/v1/sessions/{self.id}/{verb}" if verb else f"/v1/sessions/{self.id}"


def _observation(reply: dict[str, Any]) -> Observation:
    return Observation(reply["text"], reply["info"])
