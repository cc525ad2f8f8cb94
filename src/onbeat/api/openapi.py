"""The OpenAPI document, made to say what is true: our problems, our patch, and no error that cannot happen."""

from __future__ import annotations

from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from onbeat.api.answers import PROBLEM_SCHEMA
from onbeat.api.schemas.merge_patch import describe_patch

_OF_BODIES: Final = ("413", "415")
_DEFAULT_ERRORS: Final = ("HTTPValidationError", "ValidationError")


def describe(app: FastAPI) -> dict[str, Any]:
    """The document, made once. FastAPI's default error shape, which this API never answers, is not in it."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        problem = dict(PROBLEM_SCHEMA)
        schemas.update(problem.pop("$defs", {}))
        schemas |= {"Problem": problem, "JobPatch": describe_patch()}
        for name in _DEFAULT_ERRORS:
            schemas.pop(name, None)
        for path in document["paths"].values():
            for operation in path.values():
                _correct_errors(operation)
        app.openapi_schema = document
    return app.openapi_schema


def _correct_errors(operation: dict[str, Any]) -> None:
    responses = operation["responses"]
    if "HTTPValidationError" in str(responses.get("422")):
        responses["422"].get("content", {}).pop("application/json", None)
        if not responses["422"].get("content"):
            del responses["422"]
    if "requestBody" not in operation:
        for status in _OF_BODIES:
            responses.pop(status, None)
