"""Guards against web pages that reach for this server from a visitor's browser. Source: reliability S19, S20."""

from __future__ import annotations

from typing import Final

from starlette.types import ASGIApp, Receive, Scope, Send

from onbeat.api.problems import problem_response

LOOPBACK_HOSTS: Final = frozenset({"localhost", "127.0.0.1", "[::1]", "::1"})
PROBE_PATHS: Final = frozenset({"/healthz", "/readyz"})
"""Orchestrators ask these by address; they tell nothing that a web page could use."""

_SAFE_METHODS: Final = frozenset({"GET", "HEAD", "OPTIONS"})


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
            is_probe = scope["path"] in PROBE_PATHS
            if self._hosts and not is_probe and _host_name(host) not in self._hosts:
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
    return origin is not None and origin.partition("://")[2].lower() != host.lower()
