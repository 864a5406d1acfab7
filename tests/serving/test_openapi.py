"""The API's document is true: it lists every route, and what is generated from it never meets a fault of ours."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from sojourn.serving.app import create_app
from sojourn.serving.dialects import dialect_routes
from sojourn.serving.openapi import document
from sojourn.serving.worker import bind, run_app, url_of
from tests.serving.worlds import CounterConfig, CounterService


def test_it_lists_every_route_and_no_other():
    app = create_app([CounterService()])
    foreign = {route.path for route in dialect_routes(app.state.operations)}
    own = [route for route in app.routes if route.path not in foreign]
    served = {(route.path, method.lower()) for route in own for method in route.methods}
    listed = {(path, method) for path, operations in document()["paths"].items() for method in operations}
    assert served == listed | {("/openapi.json", "get")}


def test_every_reference_leads_somewhere():
    schemas = document()["components"]["schemas"]
    for name in re.findall(r"#/components/schemas/(\w+)", str(document())):
        assert name in schemas


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The service on a real port, in a thread, for a fuzzer that speaks synchronous HTTP."""
    ready, ended = threading.Event(), threading.Event()
    stops = []

    class Handle:
        def on_end(self, stop, grace_s):
            stops.append(stop)

    def work(sock) -> None:
        asyncio.run(run_app(create_app([CounterService(CounterConfig(tame=True))]), sock, ready.set, 1.0, Handle()))
        ended.set()

    with bind("127.0.0.1", 0) as sock:
        threading.Thread(target=work, args=(sock,), daemon=True).start()
        assert ready.wait(10)
        yield url_of(sock)
        stops[0]()
        assert ended.wait(10)


schema = schemathesis.openapi.from_dict(document())
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]


def aim(case, url: str) -> None:
    """Put a living session and a real environment where the document can only say `string`."""
    if "env" in case.path_parameters:
        case.path_parameters["env"] = "counter"
    if "id" in case.path_parameters:
        reply = httpx.post(f"{url}/v1/sessions", json={"env": "counter", "task": "counter_1"})
        case.path_parameters["id"] = reply.json()["id"]
    if isinstance(case.body, dict):
        for name, value in {"env": "counter", "task": "counter_1", "revision": 0}.items():
            if isinstance(case.body.get(name), type(value)):
                case.body[name] = value


@schema.parametrize()
@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None)
def test_what_the_document_allows_and_what_it_does_not_never_meets_a_fault(case, url):
    aim(case, url)
    case.validate_response(case.call(base_url=url), checks=CHECKS)
