"""Errors as RFC 9457 problems, from ONE table: code → status and title. Nothing else in the API names a status."""

from __future__ import annotations

import json
import re
from typing import Any, Final

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import Response
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

from onbeat.domain.errors import DefinitionError, OnbeatError

MEDIA_TYPE: Final = "application/problem+json"
TYPE_PREFIX: Final = "urn:onbeat:problem:"

PROBLEMS: Final[dict[str, tuple[int, str]]] = {
    # the request cannot be read
    "json_invalid": (400, "The body is not acceptable JSON"),
    "query_invalid": (400, "A query parameter is not acceptable"),
    "header_field_invalid": (400, "A request header is not acceptable"),
    "cursor_invalid": (400, "The cursor is not one of ours"),
    "host_not_allowed": (400, "This server does not answer to that name"),
    "body_too_large": (413, "The body is too large"),
    "media_type_unsupported": (415, "The body's media type or encoding is not supported"),
    # who asks
    "not_authenticated": (401, "A valid API key is required"),
    "not_allowed": (403, "The API key does not carry the scope that the call needs"),
    "cross_site_refused": (403, "A web page of another site may not do this"),
    # what is asked for
    "id_invalid": (404, "There is nothing with that id"),
    "job_not_found": (404, "There is no such job"),
    "run_not_found": (404, "There is no such run"),
    "key_not_found": (404, "There is no such key"),
    "calendar_not_found": (404, "There is no such calendar"),
    "backfill_not_found": (404, "There is no such backfill"),
    "blackout_not_found": (404, "There is no such blackout"),
    "path_not_found": (404, "There is nothing at this path"),
    "method_not_allowed": (405, "This path does not take that method"),
    "key_taken": (409, "Another job has that key"),
    "calendar_in_use": (409, "Jobs use the calendar"),
    "state_conflict": (409, "The state does not allow this"),
    "lease_lost": (409, "The lease is no longer yours"),
    "run_terminal": (409, "The run has already ended"),
    "idempotency_key_in_flight": (409, "The first request with that key is still being worked on"),
    "version_mismatch": (412, "The job was changed meanwhile"),
    # the request is readable and cannot be honoured
    "field_invalid": (422, "A field is not acceptable"),
    "field_missing": (422, "A required field is missing"),
    "unknown_field": (422, "The body has a field that nobody knows"),
    "idempotency_key_reused": (422, "That key was used for another request"),
    "config_invalid": (500, "The server is misconfigured"),
    "internal": (500, "Something went wrong here"),
    "store_unavailable": (503, "The database does not answer"),
}

DEFINITION_STATUS: Final = (422, "The job cannot be honoured as written")
"""For every DefinitionError: its own code says which rule, the status is the same."""

_CODE_OF_PLACE: Final = {"query": "query_invalid", "header": "header_field_invalid"}
RETRY_AFTER_S: Final = 2
_PLACES: Final = (("body",), ("query",), ("path",), ("header",))


REQUEST_ID: Final = "request_id"


class FieldProblem(BaseModel):
    """One field that is not acceptable."""

    code: str
    field: str
    detail: str


class Problem(BaseModel):
    """RFC 9457. `code` is stable; `detail` and `remedy` are for people."""

    type: str = Field(examples=["urn:onbeat:problem:cron_invalid"])
    title: str
    status: int
    code: str = Field(examples=["cron_invalid"])
    detail: str
    field: str | None = Field(default=None, examples=["schedules[0].cron"])
    remedy: str | None = Field(default=None, examples=["use a minute from 0 to 59"])
    request_id: str | None = Field(default=None, description="The id under which the server's log speaks of this")
    errors: list[FieldProblem] | None = Field(default=None, description="Every field that is not acceptable")


def problem_response(
    code: str,
    detail: str,
    *,
    field: str | None = None,
    remedy: str | None = None,
    errors: list[FieldProblem] | None = None,
    known: tuple[int, str] | None = None,
) -> Response:
    """The answer for a code of the table, or for one whose status and title are given."""
    status, title = known or PROBLEMS.get(code, DEFINITION_STATUS)
    problem: dict[str, Any] = {
        "type": TYPE_PREFIX + code,
        "title": title,
        "status": status,
        "code": code,
        "detail": detail,
    }
    request_id = structlog.contextvars.get_contextvars().get(REQUEST_ID)
    if request_id is not None:
        problem[REQUEST_ID] = request_id
    if field is not None:
        problem["field"] = field
    if remedy is not None:
        problem["remedy"] = remedy
    if errors:
        problem["errors"] = [error.model_dump() for error in errors]
    headers = {"retry-after": str(RETRY_AFTER_S)} if status in (429, 503) else {}
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    return Response(json.dumps(problem, ensure_ascii=True), status_code=status, media_type=MEDIA_TYPE, headers=headers)


def response_for(error: OnbeatError) -> Response:
    """The answer to one of our errors."""
    if isinstance(error, DefinitionError):
        return problem_response(
            error.reason_code, error.detail, field=error.field, remedy=error.remedy, known=DEFINITION_STATUS
        )
    return problem_response(error.code, error.detail, field=error.field, remedy=error.remedy)


def field_path(location: tuple[int | str, ...]) -> str:
    """`schedules[0].cron` from what pydantic says."""
    path = ""
    for part in location:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else str(part)
    return path


def field_problems(errors: list[Any]) -> list[FieldProblem]:
    """What pydantic found, in our codes."""
    codes = {"extra_forbidden": "unknown_field", "missing": "field_missing"}
    problems: list[FieldProblem] = []
    for error in errors:
        location = error["loc"][1:] if error["loc"][:1] in _PLACES else error["loc"]
        problems.append(
            FieldProblem(
                code=codes.get(error["type"], "field_invalid"),
                field=field_path(location)[:200] or "body",
                detail=str(error["msg"]).removeprefix("Value error, "),
            )
        )
    return problems


def refusal_of_fields(problems: list[FieldProblem]) -> Response:
    """The answer to a body with these problems; the first one speaks for all."""
    first = problems[0]
    return problem_response(first.code, f"{first.field}: {first.detail}", field=first.field, errors=problems)


async def _on_known(_request: Request, error: Exception) -> Response:
    assert isinstance(error, OnbeatError)
    return response_for(error)


async def _on_validation(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    problems = field_problems(list(error.errors()))
    code = _CODE_OF_PLACE.get(str(error.errors()[0]["loc"][0]))
    if code is None:
        return refusal_of_fields(problems)
    first = problems[0]
    return problem_response(code, f"{first.field}: {first.detail}", field=first.field, errors=problems)


async def _on_http(request: Request, error: Exception) -> Response:
    """What Starlette itself refuses: unknown paths, and methods that a path does not take."""
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        allowed = _methods_of(request)
        answer = problem_response("method_not_allowed", f"this path takes {', '.join(allowed)}")
        answer.headers["allow"] = ", ".join(allowed)
        return answer
    if error.status_code == 404:
        return problem_response("path_not_found", f"there is nothing at {request.url.path[:200]!a}")
    return problem_response("field_invalid", str(error.detail), known=(error.status_code, "The request is refused"))


def _methods_of(request: Request) -> list[str]:
    """Every method of the path. Starlette names only those of the first route that it met."""
    document = request.app.openapi()
    for template, operations in document["paths"].items():
        if re.fullmatch(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(template)), request.url.path):
            return sorted(method.upper() for method in operations)
    return ["GET"]


def install_problem_handlers(app: FastAPI) -> None:
    """Every error of ours that leaves a route becomes a problem. For all else see request_id.py."""
    app.add_exception_handler(OnbeatError, _on_known)
    app.add_exception_handler(RequestValidationError, _on_validation)
    app.add_exception_handler(HTTPException, _on_http)
