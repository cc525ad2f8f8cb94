"""Every request has an id: in the answer, in its problem and in every line that is logged because of it."""

from __future__ import annotations

import secrets

import structlog
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from onbeat.api.problems import REQUEST_ID


class RequestIds:
    """ASGI middleware. Ids that clients send are not taken over: they would write into our log."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = f"req_{secrets.token_hex(8)}"

        async def send_named(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)["x-request-id"] = request_id
            await send(message)

        with structlog.contextvars.bound_contextvars(**{REQUEST_ID: request_id}):
            await self._app(scope, receive, send_named)
