"""How routes answer: JSON written once, documented errors, and the same answer to the same Idempotency-Key."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Final

import msgspec
from fastapi import Depends, Header, Request, Response

from onbeat.api.context import context_of
from onbeat.api.problems import Problem
from onbeat.domain.errors import RequestError, StoreUnavailable, VersionMismatch
from onbeat.services.api_keys import Principal
from onbeat.services.idempotency import LONGEST_KEY, job_ids

IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description='A quoted string, like `"8e03978e"`: the same request with the same key is answered the same, once',
    ),
]


class HeaderRefused(RequestError):
    """A request header is not acceptable."""

    code = "header_field_invalid"


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The error answers of a route, for OpenAPI. 401, 403 and 503 belong to every route."""
    content = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {
        status: {"description": "A problem (RFC 9457)", "content": content}
        for status in sorted({400, 401, 403, 413, 415, 503, *statuses})
    }


_KEPT_HEADERS: Final = frozenset({"content-type", "location", "etag"})
_ENTITY_TAG = re.compile(r'(?:W/)?"[\x21\x23-\x7e]*"')
_ENTITY_TAGS = re.compile(rf"{_ENTITY_TAG.pattern}(?:[ \t]*,[ \t]*{_ENTITY_TAG.pattern})*")

PROBLEM_SCHEMA: Final = Problem.model_json_schema(ref_template="#/components/schemas/{model}")


def json_answer(value: object, *, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """JSON that is already plain: written by msgspec, which is what makes batches of thousands quick."""
    return Response(msgspec.json.encode(value), status_code=status, media_type="application/json", headers=headers)


class Once:
    """What a request does under its Idempotency-Key. Call it with what makes the answer."""

    def __init__(self, request: Request, key: str | None) -> None:
        principal: Principal = request.state.principal
        self._idempotency = context_of(request).idempotency
        self._scope = f"{principal.namespace} {request.method} {request.url.path}"
        self._body: bytes = request.state.body
        self._key = key

    def job_ids(self, count: int) -> list[int] | None:
        """The ids of the jobs that the request creates, so that its next try finds them. None: it bears no key."""
        return None if self._key is None else job_ids(self._scope, self._key, self._body, count)

    async def __call__(self, produce: Callable[[], Awaitable[Response]]) -> Response:
        """Run `produce`, or repeat what was answered under the key before. A failure frees the key.

        Raises IdempotencyConflict, IdempotencyInFlight.
        """
        scope, key, body = self._scope, self._key, self._body
        if key is None:
            return await produce()
        saved = await self._idempotency.begin(scope, key, body)
        if saved is not None:
            headers = msgspec.json.decode(saved.headers, type=dict[str, str])
            return Response(saved.body, status_code=saved.status, headers=headers | {"idempotent-replayed": "true"})
        try:
            answer = await produce()
        except BaseException:
            # Refused, failed or cut off: nothing was answered, and the (mended) request may come under the same key.
            with contextlib.suppress(StoreUnavailable):
                await self._idempotency.drop(scope, key)
            raise
        kept = {name: value for name, value in answer.headers.items() if name in _KEPT_HEADERS}
        with contextlib.suppress(StoreUnavailable):  # what was asked for is done, and the caller is to hear of it
            await self._idempotency.keep(
                scope,
                key,
                body,
                status=answer.status_code,
                headers=msgspec.json.encode(kept).decode(),
                body=bytes(answer.body),
            )
        return answer


async def _once(request: Request, idempotency_key: IdempotencyKey = None) -> Once:
    """A dependency. Depend on the scope first: an answer is repeated only to callers who may make the request."""
    return Once(request, None if idempotency_key is None else _read_key(idempotency_key))


AnswerOnce = Annotated[Once, Depends(_once)]


async def refuse_idempotency_key(
    idempotency_key: Annotated[str | None, Header(include_in_schema=False)] = None,
) -> None:
    """A dependency of calls whose answer shows a secret: it is told once and kept nowhere. Raises HeaderRefused."""
    if idempotency_key is not None:
        raise HeaderRefused(
            "this answer shows a secret and is not kept",
            field="Idempotency-Key",
            remedy="leave the header out; where the answer was lost, make another and revoke the first",
        )


def _read_key(text: str) -> str:
    quoted = len(text) >= 2 and text[0] == text[-1] == '"'
    key = text[1:-1] if quoted else ""
    if not 1 <= len(key) <= LONGEST_KEY or not all(" " <= letter <= "~" and letter not in '"\\' for letter in key):
        raise HeaderRefused(
            f"Idempotency-Key is a quoted string of 1..{LONGEST_KEY} printable characters",
            field="Idempotency-Key",
            remedy='write it like `"8e03978e-40d5"`',
        )
    return key


def version_to_match(if_match: str | None, current: int | None) -> int | None:
    """The version that a change must still find, by If-Match; None: no condition. `current` None: there is no job.

    Tags compare strongly, so a weak one never matches. Raises VersionMismatch, or HeaderRefused for what is no list
    of entity tags. Source: RFC 9110 §13.1.1.
    """
    if if_match is None:
        return None
    text = if_match.strip(" \t")
    if text != "*" and not _ENTITY_TAGS.fullmatch(text):
        raise HeaderRefused(
            "If-Match takes entity tags in quotes, as ETag gave them", field="If-Match", remedy='send it like `"3"`'
        )
    if current is None or (text != "*" and etag(current) not in _ENTITY_TAG.findall(text)):
        shown = "there is no such job" if current is None else f"the job is at version {current}"
        raise VersionMismatch(
            f"{shown}, you sent {text[:60]}",
            field="If-Match",
            remedy="read the job again and repeat your change on it",
        )
    return None if text == "*" else current


def etag(version: int) -> str:
    """A job's version as an entity tag."""
    return f'"{version}"'
