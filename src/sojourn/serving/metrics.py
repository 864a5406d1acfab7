"""Prometheus metrics of one worker, in a registry of their own."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from sojourn.serving.snapshots import SnapshotStore

_STEP_BUCKETS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """What a worker counts; label children on the hot path are looked up once."""

    def __init__(self, worker: str) -> None:
        self._worker = worker
        self.registry = CollectorRegistry()
        labels = ["worker"]
        self.sessions_open = Gauge("sojourn_sessions_open", "Open sessions", labels, registry=self.registry).labels(
            worker
        )
        self.leases_expired = Counter(
            "sojourn_leases_expired", "Sessions reclaimed because their lease ran out", labels, registry=self.registry
        ).labels(worker)
        self._snapshot_bytes = Gauge(
            "sojourn_snapshot_bytes", "Bytes of stored snapshots", labels, registry=self.registry
        ).labels(worker)
        self._snapshot_count = Gauge("sojourn_snapshots", "Stored snapshots", labels, registry=self.registry).labels(
            worker
        )
        self._steps = Counter(
            "sojourn_steps", "Steps by environment and status", [*labels, "env", "status"], registry=self.registry
        )
        self._step_seconds = Histogram(
            "sojourn_step_seconds",
            "Time inside the environment's step",
            [*labels, "env"],
            buckets=_STEP_BUCKETS,
            registry=self.registry,
        )
        self._request_seconds = Histogram(
            "sojourn_request_seconds",
            "Time of a request, body and reply included",
            [*labels, "route", "status"],
            registry=self.registry,
        )
        self._step_children: dict[str, Histogram] = {}
        self._status_children: dict[tuple[str, int], Counter] = {}

    def stepped(self, env: str, seconds: float) -> None:
        child = self._step_children.get(env)
        if child is None:
            child = self._step_children[env] = self._step_seconds.labels(self._worker, env)
        child.observe(seconds)

    def step_status(self, env: str, status: int) -> None:
        child = self._status_children.get((env, status))
        if child is None:
            child = self._status_children[env, status] = self._steps.labels(self._worker, env, str(status))
        child.inc()

    def request(self, route: str, status: int, seconds: float) -> None:
        self._request_seconds.labels(self._worker, route, str(status)).observe(seconds)

    def snapshots(self, store: SnapshotStore) -> None:
        self._snapshot_bytes.set(store.bytes)
        self._snapshot_count.set(len(store))

    def render(self, sessions: int) -> bytes:
        """The exposition text."""
        self.sessions_open.set(sessions)
        return generate_latest(self.registry)


def merge(texts: list[str]) -> bytes:
    """Several workers' expositions as one: every family once, with everybody's samples."""
    headers: dict[str, list[str]] = {}
    samples: dict[str, list[str]] = {}
    for text in texts:
        family = ""
        for line in text.splitlines():
            if line.startswith(("# HELP ", "# TYPE ")):
                family = line.split(" ", 3)[2]
                known = headers.setdefault(family, [])
                if line not in known:
                    known.append(line)
            elif line:
                samples.setdefault(family, []).append(line)
    lines = [line for family, head in headers.items() for line in [*head, *samples.get(family, [])]]
    return ("\n".join(lines) + "\n").encode()
