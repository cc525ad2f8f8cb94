"""/healthz, /readyz and /metrics."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Final

from fastapi import APIRouter, Request, Response
from fastapi.responses import PlainTextResponse
from pydantic import Field

from onbeat.api.answers import json_answer, problems
from onbeat.api.auth import Admin
from onbeat.api.context import context_of
from onbeat.api.route import EdgeRoute
from onbeat.api.schemas.base import View
from onbeat.clock import describe_skew
from onbeat.domain.errors import OnbeatError

router = APIRouter(tags=["health"])
metrics_router = APIRouter(tags=["health"], route_class=EdgeRoute)

STORE_ANSWERS_WITHIN_S: Final = 2.0


class HealthView(View):
    """The process is alive."""

    status: str
    version: str


class ReadinessView(View):
    """Whether this process does its work, and if not, why. Anybody may ask, so it tells no more."""

    ready: bool
    reasons: list[str]
    warnings: list[str] = Field(description="It does its work, and somebody should look after this all the same")


@router.get("/healthz", response_model=HealthView, summary="Is the process alive?")
async def healthz(request: Request) -> Response:
    return json_answer({"status": "ok", "version": context_of(request).version})


@router.get(
    "/readyz",
    response_model=ReadinessView,
    responses={503: {"model": ReadinessView, "description": "It does not, and says why"}},
    summary="Does it do its work?",
)
async def readyz(request: Request) -> Response:
    context = context_of(request)
    reasons = [f"the {loop} loop fails" for loop in context.failing_loops()]
    if context.is_stopping():
        reasons.append("stopping")
    try:
        async with asyncio.timeout(STORE_ANSWERS_WITHIN_S):
            await context.counts()
    except (OnbeatError, TimeoutError):
        reasons.append("the database does not answer")
    skew = describe_skew(context.clock.skew_us)
    # Such a host stays in rotation: its clock decides nothing, and were the database's the wrong one, all would go.
    warnings = [] if skew is None else [skew]
    status = 503 if reasons else 200
    return json_answer({"ready": not reasons, "reasons": reasons, "warnings": warnings}, status=status)


@metrics_router.get(
    "/metrics",
    response_class=PlainTextResponse,
    responses=problems(),
    summary="Metrics for Prometheus (scope: admin)",
)
async def metrics(request: Request, _principal: Admin) -> Response:
    context = context_of(request)
    with contextlib.suppress(OnbeatError, TimeoutError):  # the other figures are wanted then most of all
        async with asyncio.timeout(STORE_ANSWERS_WITHIN_S):
            context.metrics.overdue.set(await context.runs.count_overdue())
    context.metrics.clock_skew.set(context.clock.skew_us / 1e6)
    return Response(context.metrics.render(), media_type="text/plain; version=0.0.4; charset=utf-8")
