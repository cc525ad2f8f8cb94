"""/healthz, /readyz and /metrics."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response

from onbeat.api.answers import json_answer, problems
from onbeat.api.auth import Admin
from onbeat.api.context import context_of
from onbeat.api.schemas.base import View
from onbeat.domain.errors import OnbeatError

router = APIRouter(tags=["health"])


class HealthView(View):
    """The process is alive."""

    status: str
    version: str


class ReadinessView(View):
    """Whether this process does its work, and if not, why."""

    status: str
    reasons: list[str]
    lag_s: float | None = None
    pending: int | None = None
    running: int | None = None


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
    figures: dict[str, Any] = {}
    try:
        counts = await context.counts()
    except OnbeatError:
        reasons.append("the database does not answer")
    else:
        behind_us = 0 if counts.next_due_at is None else max(context.clock.now() - counts.next_due_at, 0)
        figures = {"lag_s": behind_us / 1e6, "pending": counts.pending, "running": counts.running}
    status = "unready" if reasons else "ready"
    return json_answer({"status": status, "reasons": reasons, **figures}, status=503 if reasons else 200)


@router.get("/metrics", responses=problems(), summary="Metrics for Prometheus (scope: admin)", response_class=Response)
async def metrics(request: Request, _principal: Admin) -> Response:
    return Response(context_of(request).metrics.render(), media_type="text/plain; version=0.0.4; charset=utf-8")
