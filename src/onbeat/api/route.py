"""What every /v1 route does before its endpoint, in this order: the query's names, the caller, the body.

The caller comes before the body, so that nobody without a key makes this server read and parse megabytes.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, Final

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.requests import ClientDisconnect

from onbeat.api.auth import identify
from onbeat.api.context import context_of
from onbeat.api.request_body import read_body
from onbeat.domain.errors import NotAuthenticated, RequestError
from onbeat.services.api_keys import Principal

Handler = Callable[[Request], Awaitable[Response]]

JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
KEY_PARAMETERS: Final = frozenset({"api_key", "apikey", "key", "token", "access_token"})

_WITH_BODY: Final = frozenset({"POST", "PUT", "PATCH"})


class QueryRefused(RequestError):
    """A query parameter is not acceptable."""

    code = "query_invalid"


class EdgeRoute(APIRoute):
    """A route for known callers."""

    largest_body: ClassVar[int] = 1_048_576

    async def find_caller(self, request: Request) -> Principal | None:
        """Whose request this is. Raises NotAuthenticated where nobody's is not enough."""
        return await identify(request)

    def get_route_handler(self) -> Callable[[Request], typing.Coroutine[Any, Any, Response]]:
        answer = super().get_route_handler()
        parameters = {field.alias: _takes_several(field.field_info.annotation) for field in self.dependant.query_params}
        media_types = (JSON, MERGE_PATCH) if "PATCH" in (self.methods or ()) else (JSON,)

        async def handle(request: Request) -> Response:
            _check_query(request, parameters)
            request.state.principal = await self.find_caller(request)
            if request.method not in _WITH_BODY:
                return await answer(request)
            try:
                raw, value = await read_body(request, largest=self.largest_body, media_types=media_types)
            except ClientDisconnect:
                return Response(status_code=400)  # nobody is there to read it
            return await answer(_ReadRequest(request, raw, value))

        return handle


class BulkRoute(EdgeRoute):
    """A route whose body carries many items."""

    largest_body: ClassVar[int] = 16 * 1_048_576


class CapabilityRoute(EdgeRoute):
    """A route whose body carries the right itself. A key may come along; one that is wrong is refused all the same."""

    largest_body: ClassVar[int] = 65_536

    async def find_caller(self, request: Request) -> Principal | None:
        if context_of(request).keys is not None and "authorization" not in request.headers:
            return None
        return await identify(request)


class _ReadRequest(Request):
    """The request with its body read and parsed already."""

    def __init__(self, request: Request, raw: bytes, value: Any) -> None:
        super().__init__(request.scope, request.receive)
        self._raw = raw
        self._value = value
        self.state.body = raw
        self.state.json = value

    async def body(self) -> bytes:
        return self._raw

    async def json(self) -> Any:
        return self._value


def _check_query(request: Request, parameters: dict[str, bool]) -> None:
    """A misspelt filter would otherwise answer with everything, as if nothing had been asked."""
    names = [name for name, _ in request.query_params.multi_items()]
    for name in names:
        if name not in parameters and name.lower() in KEY_PARAMETERS:
            raise NotAuthenticated(
                "a key in a URL ends up in logs and is not accepted", remedy="send `Authorization: Bearer onb_…`"
            )
        if name not in parameters:
            known = ", ".join(parameters) or "none"
            raise QueryRefused(
                f"there is no query parameter {name[:60]!a} here", field=name[:60], remedy=f"known: {known}"
            )
        if not parameters[name] and names.count(name) > 1:
            raise QueryRefused(f"{name} stands there twice", field=name, remedy="give it once")


def _takes_several(annotation: Any) -> bool:
    if typing.get_origin(annotation) in (typing.Union, types.UnionType):
        return any(_takes_several(part) for part in typing.get_args(annotation))
    return annotation is list or typing.get_origin(annotation) is list
