"""Puts the API together: routes, guards, problems, and an OpenAPI document that says what is true."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from onbeat.api import admin, batch, health, job_actions, jobs, runs, schedules, workers
from onbeat.api.answers import PROBLEM_SCHEMA
from onbeat.api.browser_guard import LOOPBACK_HOSTS, BrowserGuard
from onbeat.api.context import ApiContext
from onbeat.api.problems import install_problem_handlers
from onbeat.api.request_id import RequestIds
from onbeat.api.schemas.merge_patch import describe_patch

DESCRIPTION = "Jobs, their runs, and the work of workers. Errors are problems (RFC 9457) with stable codes."


def build_api(context: ApiContext) -> FastAPI:
    """The application over these services."""
    app = FastAPI(
        title="onbeat",
        version=context.version,
        description=DESCRIPTION,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.context = context
    install_problem_handlers(app)
    for router in (
        workers.router,  # before runs: /v1/runs/claim is no run's id
        workers.finish_router,
        workers.time_router,
        runs.router,
        batch.router,
        jobs.router,
        job_actions.router,
        schedules.router,
        admin.router,
        health.router,
        health.metrics_router,
    ):
        app.include_router(router)
    app.add_middleware(BrowserGuard, hosts=_hosts(context))
    app.add_middleware(RequestIds)  # the outermost: what the guard refuses has an id too
    app.openapi = lambda: _describe(app)  # type: ignore[method-assign]  # FastAPI's own way to replace it
    return app


def _hosts(context: ApiContext) -> frozenset[str]:
    if context.keys is None:
        return LOOPBACK_HOSTS | {host.lower() for host in context.allowed_hosts}
    return frozenset(host.lower() for host in context.allowed_hosts)


def _describe(app: FastAPI) -> dict[str, Any]:
    """OpenAPI without FastAPI's default error shape, which this API never answers."""
    if app.openapi_schema is None:
        document = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        definitions = dict(PROBLEM_SCHEMA)
        schemas.update(definitions.pop("$defs", {}))
        schemas["Problem"] = definitions
        schemas["JobPatch"] = describe_patch()
        for name in ("HTTPValidationError", "ValidationError"):
            schemas.pop(name, None)
        for path in document["paths"].values():
            for operation in path.values():
                _drop_default_errors(operation)
        app.openapi_schema = document
    return app.openapi_schema


def _drop_default_errors(operation: dict[str, Any]) -> None:
    refused = operation["responses"].get("422")
    if refused is not None and "application/json" in refused.get("content", {}):
        content = refused["content"]
        if "HTTPValidationError" in str(content["application/json"]):
            del content["application/json"]
        if not content:
            content["application/problem+json"] = {"schema": {"$ref": "#/components/schemas/Problem"}}
