"""What a node answers while its database is not there yet: it lives, it is not ready, and requests may come again."""

from __future__ import annotations

from typing import Final

from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from onbeat.api.answers import json_answer
from onbeat.api.problems import problem_response
from onbeat.api.request_id import RequestIds

AWAITED: Final = "waiting for the database, which does not answer"


def build_awaiting_api(*, version: str) -> ASGIApp:
    """The application until there is one over services."""

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        await _response_to(scope["path"], version=version)(scope, receive, send)

    return RequestIds(answer)


def _response_to(path: str, *, version: str) -> Response:
    if path == "/healthz":
        return json_answer({"status": "ok", "version": version})
    if path == "/readyz":
        return json_answer({"ready": False, "reasons": [AWAITED], "warnings": []}, status=503)
    return problem_response("store_unavailable", f"this node is {AWAITED}")
