"""/v1/keys and /v1/secrets: for administrators. Values are shown once, when they are made."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Path, Request, Response
from pydantic import Field

from onbeat.api.answers import json_answer, problems, refuse_idempotency_key
from onbeat.api.auth import Admin
from onbeat.api.context import context_of
from onbeat.api.route import EdgeRoute
from onbeat.api.schemas.base import Body, Name, View, moment
from onbeat.domain.errors import OnbeatError, StateConflict
from onbeat.services.api_keys import SCOPES, ApiKeys
from onbeat.store.values import ApiKey

router = APIRouter(prefix="/v1", tags=["admin"], route_class=EdgeRoute)

SecretName = Annotated[str, Path(pattern=r"^[a-z0-9][a-z0-9._-]{0,127}$", max_length=128)]


class KeyNotFound(OnbeatError):
    """There is no such key, or it was revoked before."""

    code = "key_not_found"


class KeyBody(Body):
    """A key to be made."""

    name: Name
    scopes: list[str] = Field(min_length=1, max_length=len(SCOPES), description=", ".join(SCOPES))
    expires_in_s: int | None = Field(None, ge=1, le=10 * 366 * 86_400)


class KeyView(View):
    """A key, without its secret half."""

    id: str
    name: str
    scopes: list[str]
    created_at: str
    expires_at: str | None
    revoked_at: str | None
    last_used_at: str | None


class NewKeyView(KeyView):
    """A new key: `key` is shown only now."""

    key: str


class KeyList(View):
    """Every key of the caller's namespace, revoked ones too."""

    items: list[KeyView]


class SecretBody(Body):
    """How to rotate."""

    grace_s: int = Field(86_400, ge=0, le=30 * 86_400, description="How long the former secret goes on signing")


class NewSecretView(View):
    """A new secret: shown only now."""

    name: str
    secret: str


class SecretView(View):
    """A version of a secret. `retires_at` null: the current one."""

    name: str
    version: int
    created_at: str
    retires_at: str | None


class SecretList(View):
    """Every version of every name, without values."""

    items: list[SecretView]


def _keys(request: Request) -> ApiKeys:
    keys = context_of(request).keys
    if keys is None:
        raise StateConflict("`onbeat dev` has no API keys", remedy="use `onbeat serve`")
    return keys


def _view_key(key: ApiKey) -> dict[str, Any]:
    return {
        "id": key.key_id,
        "name": key.name,
        "scopes": list(key.scopes),
        "created_at": moment(key.created_at),
        "expires_at": moment(key.expires_at),
        "revoked_at": moment(key.revoked_at),
        "last_used_at": moment(key.last_used_at),
    }


@router.post(
    "/keys",
    status_code=201,
    response_model=NewKeyView,
    responses=problems(409, 422),
    summary="Make a key",
    dependencies=[Depends(refuse_idempotency_key)],
)
async def create_key(request: Request, body: KeyBody, principal: Admin) -> Response:
    key, text = await _keys(request).create(
        name=body.name, scopes=tuple(body.scopes), namespace=principal.namespace, expires_in_s=body.expires_in_s
    )
    return json_answer(_view_key(key) | {"key": text}, status=201)


@router.get("/keys", response_model=KeyList, responses=problems(409), summary="List keys")
async def list_keys(request: Request, principal: Admin) -> Response:
    return json_answer({"items": [_view_key(key) for key in await _keys(request).find(namespace=principal.namespace)]})


@router.delete("/keys/{key_id}", status_code=204, responses=problems(404, 409), summary="Revoke a key")
async def revoke_key(request: Request, key_id: str, principal: Admin) -> Response:
    if not await _keys(request).revoke(key_id, namespace=principal.namespace):
        raise KeyNotFound
    return Response(status_code=204)


@router.post(
    "/secrets/{name}:rotate",
    status_code=201,
    response_model=NewSecretView,
    responses=problems(422),
    summary="Make or rotate a secret",
    dependencies=[Depends(refuse_idempotency_key)],
)
async def rotate_secret(
    request: Request, name: SecretName, principal: Admin, body: SecretBody = SecretBody()
) -> Response:
    """The former secret goes on signing beside the new one for `grace_s`: receivers change in their own time."""
    secret = await context_of(request).secrets.rotate(principal.namespace, name, grace_s=body.grace_s)
    return json_answer({"name": name, "secret": secret}, status=201)


@router.get("/secrets", response_model=SecretList, responses=problems(), summary="List secrets, without values")
async def list_secrets(request: Request, principal: Admin) -> Response:
    items = [
        {
            "name": secret.name,
            "version": secret.version,
            "created_at": moment(secret.created_at),
            "retires_at": moment(secret.retires_at),
        }
        for secret in await context_of(request).secrets.find(principal.namespace)
    ]
    return json_answer({"items": items})
