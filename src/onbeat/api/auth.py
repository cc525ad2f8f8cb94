"""Who calls, and whether they may. Keys travel in the Authorization header and nowhere else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Final
from urllib.parse import urlsplit

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from starlette.types import ASGIApp, Receive, Scope, Send

from onbeat.api.context import context_of
from onbeat.api.problems import problem_response
from onbeat.domain.errors import NotAllowed, NotAuthenticated
from onbeat.services.api_keys import Principal

BEARER = HTTPBearer(auto_error=False, description="An API key: `onbeat keys create`. Not needed in `onbeat dev`.")
DEVELOPER: Final = Principal(key_id="dev", name="onbeat dev", namespace="default", scopes=frozenset({"admin"}))
LOOPBACK_HOSTS: Final = frozenset({"localhost", "127.0.0.1", "[::1]", "::1"})

_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


async def authenticate(
    request: Request, credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(BEARER)]
) -> Principal:
    """The key's owner. Raises NotAuthenticated."""
    keys = context_of(request).keys
    if keys is None:
        return DEVELOPER
    if credentials is None:
        raise NotAuthenticated(remedy="send `Authorization: Bearer onb_…`")
    return await keys.authenticate(credentials.credentials)


def scope(name: str) -> Callable[[Principal], Awaitable[Principal]]:
    """A dependency: the caller, if its key carries that scope."""

    async def allowed(principal: Annotated[Principal, Depends(authenticate)]) -> Principal:
        if not principal.may(name):
            raise NotAllowed(f"this key does not carry the scope {name}", remedy="use a key that was created with it")
        return principal

    return allowed


JobsReader = Annotated[Principal, Depends(scope("jobs:read"))]
JobsWriter = Annotated[Principal, Depends(scope("jobs:write"))]
RunsReader = Annotated[Principal, Depends(scope("runs:read"))]
RunsWriter = Annotated[Principal, Depends(scope("runs:write"))]
RunsClaimer = Annotated[Principal, Depends(scope("runs:claim"))]
Admin = Annotated[Principal, Depends(scope("admin"))]


class BrowserGuard:
    """ASGI middleware against web pages that reach for this server from a visitor's browser.

    1. The Host header must be one of ours (DNS rebinding): the configured names, or loopback names in `onbeat dev`.
    2. Unsafe methods of another site are refused: by Sec-Fetch-Site, else by Origin. Source: Go 1.25, reliability S19.
    """

    def __init__(self, app: ASGIApp, *, hosts: frozenset[str]) -> None:
        self._app = app
        self._hosts = hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
            host = headers.get(b"host", "")
            if self._hosts and _host_name(host) not in self._hosts:
                await problem_response("host_not_allowed", "the Host header names another server")(scope, receive, send)
                return
            if scope["method"] not in _SAFE_METHODS and _is_cross_site(headers, host):
                answer = problem_response("cross_site_refused", "this request was made by a page of another site")
                await answer(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _host_name(host: str) -> str:
    name = host.rsplit(":", 1)[0] if host.count(":") == 1 or (host.startswith("[") and "]:" in host) else host
    return name.lower()


def _is_cross_site(headers: dict[bytes, str], host: str) -> bool:
    site = headers.get(b"sec-fetch-site")
    if site is not None:
        return site not in ("same-origin", "none")
    origin = headers.get(b"origin")
    return origin is not None and urlsplit(origin).netloc.lower() != host.lower()
