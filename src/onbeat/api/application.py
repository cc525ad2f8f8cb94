"""Puts the API together: routes, guards and problems."""

from __future__ import annotations

from fastapi import FastAPI
from fastapi.routing import APIRoute

from onbeat.api import (
    admin,
    backfills,
    batch,
    blackouts,
    bulk_jobs,
    bulk_runs,
    calendars,
    callbacks,
    health,
    job_actions,
    jobs,
    nodes,
    pauses,
    retries,
    runs,
    schedules,
    workers,
)
from onbeat.api.browser_guard import LOOPBACK_HOSTS, BrowserGuard
from onbeat.api.context import ApiContext
from onbeat.api.openapi import describe
from onbeat.api.problems import install_problem_handlers
from onbeat.api.request_id import RequestIds

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
        generate_unique_id_function=_operation_id,
    )
    app.state.context = context
    install_problem_handlers(app)
    for router in (
        workers.router,  # before runs: /v1/runs/claim is no run's id
        workers.finish_router,
        workers.time_router,
        callbacks.router,
        runs.router,
        batch.router,
        bulk_jobs.router,
        bulk_runs.router,
        jobs.router,
        job_actions.router,
        backfills.router,
        pauses.router,
        schedules.router,
        retries.router,
        calendars.router,
        blackouts.router,
        admin.router,
        nodes.router,
        health.router,
        health.metrics_router,
    ):
        app.include_router(router)
    app.add_middleware(BrowserGuard, hosts=_hosts(context))
    app.add_middleware(RequestIds)  # the outermost: what the guard refuses has an id too
    app.openapi = lambda: describe(app)  # type: ignore[method-assign]  # FastAPI's own way to replace it
    return app


def _hosts(context: ApiContext) -> frozenset[str]:
    if context.keys is None:
        return LOOPBACK_HOSTS | {host.lower() for host in context.allowed_hosts}
    return frozenset(host.lower() for host in context.allowed_hosts)


def _operation_id(route: APIRoute) -> str:
    """The name of the function: generated clients get methods like `create_job`."""
    return route.name
