"""/v1/runs/{id}/complete, /heartbeat, /progress: handlers that accepted a run. Their token is all that is asked for."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from onbeat.api.answers import json_answer, problems
from onbeat.api.context import context_of
from onbeat.api.route import CapabilityRoute
from onbeat.api.schemas.callbacks import LARGEST_RESULT, AliveView, CompleteBody, CompletedView, ProgressBody
from onbeat.api.schemas.jobs import write_payload
from onbeat.api.schemas.workers import TokenBody
from onbeat.client.wire import WireHeld, WireStatus, held_from_wire
from onbeat.domain.errors import LeaseLost, RequestError
from onbeat.domain.outcome import Response as KeptResponse
from onbeat.services.assignment import Held
from onbeat.store.values import Completion, LeaseStatus, Progress

router = APIRouter(prefix="/v1/runs/{run_id}", tags=["callbacks"], route_class=CapabilityRoute)

CLAIMS = "runs:claim"


@router.post(
    "/complete", response_model=CompletedView, responses=problems(404, 409, 422), summary="Report the end of the work"
)
async def complete_run(request: Request, run_id: str, body: CompleteBody) -> Response:
    """A failure follows the job's retry rules. The same report again is answered 200 again and changes nothing."""
    key, token = _held(run_id, body.token)
    if body.outcome == "succeeded" and body.error is not None:
        raise RequestError("work that succeeded has no error", field="error", remedy="leave it out")
    error = None if body.outcome == "succeeded" else body.error or "the handler reported a failure"
    completion = Completion(key, token, error=error, result=_kept(body.result))
    answer = await context_of(request).callbacks.complete(completion)
    return json_answer({"run_id": run_id, "result": answer.result, "state": answer.state})


@router.post(
    "/progress", response_model=AliveView, responses=problems(404, 409, 422), summary="Report how far the work is"
)
async def report_progress(request: Request, run_id: str, body: ProgressBody) -> Response:
    """Is a heartbeat too."""
    key, token = _held(run_id, body.token)
    status = await context_of(request).callbacks.report(Progress(key, token, body.percent, body.message))
    return json_answer(WireStatus(run_id, status))


@router.post(
    "/heartbeat", response_model=AliveView, responses=problems(404, 409, 422), summary="Report that the work goes on"
)
async def heartbeat_one(request: Request, run_id: str, body: TokenBody) -> Response:
    """By a handler with its callback token, or by a worker (scope: runs:claim) with the token of its lease."""
    context = context_of(request)
    key, token = _held(run_id, body.token)
    try:
        return json_answer(WireStatus(run_id, await context.callbacks.report(Progress(key, token))))
    except LeaseLost:
        principal = request.state.principal
        if principal is None or not principal.may(CLAIMS):
            raise
    (status,) = await context.leasing_for(CLAIMS).extend([(key, token)])
    if status == LeaseStatus.LEASE_LOST:
        raise LeaseLost
    return json_answer(WireStatus(run_id, status))


def _held(run_id: str, token: str) -> Held:
    return held_from_wire(WireHeld(run_id, token))


def _kept(result: object) -> KeptResponse | None:
    if result is None:
        return None
    text = write_payload(result).encode()
    if len(text) > LARGEST_RESULT:
        raise RequestError(f"a result has {LARGEST_RESULT} bytes at most", field="result", remedy="keep it elsewhere")
    return KeptResponse(headers=(("content-type", "application/json"),), body=text)
