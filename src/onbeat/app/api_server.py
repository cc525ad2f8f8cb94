"""uvicorn inside our own event loop. Owns the listening socket; the signals stay with the supervisor."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from onbeat.domain.errors import ConfigError


class ApiServer:
    """uvicorn inside our own event loop; signals stay with the supervisor."""

    def __init__(self, host: str, port: int) -> None:
        self._host = host
        self._port = port
        self._application: ASGIApp | None = None
        self._url = ""
        config = uvicorn.Config(
            self._answer,
            interface="asgi3",  # it cannot see that of a method
            log_config=None,
            access_log=False,
            http="httptools",
            ws="none",
            timeout_graceful_shutdown=5,
            lifespan="off",
        )
        self._server = _QuietServer(config)
        self._task: asyncio.Task[None] | None = None

    async def serve(self, application: ASGIApp) -> str:
        """Have this one answer from now on, and listen if it is the first; answer the URL.

        Raises ConfigError when the address cannot be used.
        """
        self._application = application
        if self._task is None:
            listener = _listen(self._host, self._port)
            self._task = asyncio.create_task(self._server.serve(sockets=[listener]), name="api")
            host = f"[{self._host}]" if ":" in self._host else self._host
            self._url = f"http://{host}:{listener.getsockname()[1]}"
        return self._url

    async def stop(self) -> None:
        """Answer what is under way, then close."""
        self._server.should_exit = True
        if self._task is not None:
            await self._task

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        assert self._application is not None, "it listens once there is one"
        await self._application(scope, receive, send)


class _QuietServer(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # With the protocol named, asyncio sets TCP_NODELAY on what is accepted. Without, every answer waits 40 ms: uvicorn
    # writes head and body apart, and the body is held back until the client's delayed ACK of the head.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise ConfigError(
            f"cannot listen on {host}:{port}: {error.strerror}", field="port", remedy="choose another with --port"
        ) from None
    listener.listen(1024)
    return listener
