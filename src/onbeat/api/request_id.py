"""Every request has an id: in the answer, in its problem and in every line that is logged because of it.

The last resort for what nobody expected stands here too, so that its problem and its log line share that id.
"""

from __future__ import annotations

import secrets

import structlog
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from onbeat.api.problems import REQUEST_ID, problem_response

log = structlog.get_logger(__name__)


class RequestIds:
    """ASGI middleware. Ids that clients send are not taken over: they would write into our log."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = f"req_{secrets.token_hex(8)}"

        is_answered = False

        async def send_named(message: Message) -> None:
            nonlocal is_answered
            is_answered = True
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["x-request-id"] = request_id
            await send(message)

        with structlog.contextvars.bound_contextvars(**{REQUEST_ID: request_id}):
            try:
                await self._app(scope, receive, send_named)
            except Exception as error:
                log.error("request_failed", method=scope["method"], path=scope["path"], exc_info=error)
                if is_answered:
                    raise
                answer = problem_response("internal", "the server failed over this request; its log says more")
                await answer(scope, receive, send_named)
