"""RFC 9457 problem documents as HTTP replies."""

from __future__ import annotations

import logging
import math

import orjson
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from sojourn.protocol.errors import ServiceError

logger = logging.getLogger("sojourn.serving")

MEDIA_TYPE = "application/problem+json"


def problem_response(error: ServiceError) -> Response:
    """The reply that an error stands for, `Retry-After` and `WWW-Authenticate` included."""
    headers = {}
    retry_after = error.extra.get("retry_after")
    if retry_after is not None:
        headers["retry-after"] = str(math.ceil(retry_after))
    if error.status == 401:
        headers["www-authenticate"] = "Bearer"
    return Response(orjson.dumps(error.problem()), error.status, headers, MEDIA_TYPE)


async def http_problem(_: Request, error: Exception) -> Response:
    """Unknown routes and methods."""
    assert isinstance(error, HTTPException)
    slug = str(error.detail).lower().replace(" ", "-")
    document = {
        "type": f"urn:sojourn:problem:{slug}",
        "title": str(error.detail).lower(),
        "status": error.status_code,
        "detail": str(error.detail),
    }
    return Response(orjson.dumps(document), error.status_code, error.headers, MEDIA_TYPE)


def unexpected(error: Exception) -> ServiceError:
    """What a client learns of a fault of our own; the log has the rest."""
    logger.error("unexpected error in the service", exc_info=error)
    return ServiceError("an unexpected error in the service; its log has more")
