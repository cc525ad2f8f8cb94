"""Who calls, and whether they may. Keys travel in the Authorization header and nowhere else."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Final

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from onbeat.api.context import context_of
from onbeat.domain.errors import NotAllowed, NotAuthenticated
from onbeat.services.api_keys import Principal

BEARER = HTTPBearer(
    auto_error=False,
    scheme_name="ApiKey",
    description="An API key: `onbeat keys create`. Not needed in `onbeat dev`.",
)
DEVELOPER: Final = Principal(key_id="dev", name="onbeat dev", namespace="default", scopes=frozenset({"admin"}))


async def identify(request: Request) -> Principal:
    """Whose key came with the request. Raises NotAuthenticated."""
    keys = context_of(request).keys
    if keys is None:
        return DEVELOPER
    credentials = await BEARER(request)
    if credentials is None:
        raise NotAuthenticated(remedy="send `Authorization: Bearer onb_…`")
    return await keys.authenticate(credentials.credentials)


def scope(name: str) -> Callable[..., Awaitable[Principal]]:
    """A dependency: the caller (found by the route before the body was read), if its key carries that scope."""

    async def allowed(
        request: Request, _credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(BEARER)]
    ) -> Principal:
        principal: Principal = request.state.principal
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
