"""How routes answer: JSON written once, documented errors, and the same answer to the same Idempotency-Key."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Final

import msgspec
from fastapi import Header, Request, Response

from onbeat.api.context import ApiContext
from onbeat.api.problems import Problem
from onbeat.domain.errors import RequestError
from onbeat.services.api_keys import Principal
from onbeat.services.idempotency import LONGEST_KEY

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


PROBLEM_SCHEMA: Final = Problem.model_json_schema(ref_template="#/components/schemas/{model}")


def json_answer(value: object, *, status: int = 200, headers: dict[str, str] | None = None) -> Response:
    """JSON that is already plain: written by msgspec, which is what makes batches of thousands quick."""
    return Response(msgspec.json.encode(value), status_code=status, media_type="application/json", headers=headers)


async def answer_once(
    request: Request,
    context: ApiContext,
    principal: Principal,
    key_header: str | None,
    produce: Callable[[], Awaitable[Response]],
) -> Response:
    """Run `produce`, or repeat what was answered under this Idempotency-Key. A failure of ours frees the key."""
    if key_header is None:
        return await produce()
    key = _read_key(key_header)
    scope = f"{principal.namespace} {request.method} {request.url.path}"
    body: bytes = request.state.body
    saved = await context.idempotency.begin(scope, key, body)
    if saved is not None:
        headers = msgspec.json.decode(saved.headers, type=dict[str, str])
        return Response(saved.body, status_code=saved.status, headers=headers | {"idempotent-replayed": "true"})
    try:
        answer = await produce()
    except BaseException:
        # Refused, failed or hung up: nothing was answered, and the (mended) request may come under the same key.
        await context.idempotency.drop(scope, key)
        raise
    kept = {name: value for name, value in answer.headers.items() if name in ("content-type", "location", "etag")}
    await context.idempotency.keep(
        scope, key, body, status=answer.status_code, headers=msgspec.json.encode(kept).decode(), body=bytes(answer.body)
    )
    return answer


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


def read_if_match(text: str | None) -> int | None:
    """The version in an If-Match header. None: no condition (also `*`)."""
    if text is None or text.strip() == "*":
        return None
    tag = text.strip()
    number = tag[1:-1] if len(tag) >= 3 and tag[0] == tag[-1] == '"' else ""
    if not number.isascii() or not number.isdigit() or len(number) > 18:
        raise HeaderRefused(
            "If-Match takes one strong entity tag, as ETag gave it", field="If-Match", remedy='send it like `"3"`'
        )
    return int(number)


def etag(version: int) -> str:
    """A job's version as an entity tag."""
    return f'"{version}"'
