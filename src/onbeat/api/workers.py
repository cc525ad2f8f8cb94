"""The worker's side of /v1/runs: claim, heartbeat, permit, finish, release."""

from __future__ import annotations

import asyncio
import base64
from typing import Final

from fastapi import APIRouter, Request, Response

from onbeat.api.answers import json_answer, problems
from onbeat.api.auth import RunsClaimer
from onbeat.api.context import ApiContext, context_of
from onbeat.api.route import BulkRoute, EdgeRoute
from onbeat.api.schemas.workers import (
    ClaimBody,
    ClaimedView,
    FinishBody,
    FinishedList,
    FinishedView,
    FinishList,
    HeldBody,
    HeldList,
    OutcomeBody,
    ReleasedView,
    StatusList,
    TimeView,
)
from onbeat.client.wire import (
    WireClaimed,
    WireFinish,
    WireHeld,
    WireResponse,
    WireStatus,
    finish_from_wire,
    finished_to_wire,
    held_from_wire,
    to_wire,
)
from onbeat.domain.errors import IdInvalid, LeaseLost, NotAllowed, RequestError, RunTerminal
from onbeat.domain.ids import format_run_id
from onbeat.domain.outcome import OutcomeKind
from onbeat.services.assignment import Assignment, Held
from onbeat.services.leasing import Leasing
from onbeat.store.values import Finish, FinishResult, LeaseStatus

router = APIRouter(prefix="/v1/runs", tags=["workers"], route_class=EdgeRoute)
finish_router = APIRouter(prefix="/v1/runs", tags=["workers"], route_class=BulkRoute)
time_router = APIRouter(prefix="/v1", tags=["workers"], route_class=EdgeRoute)

LARGEST_KEPT_BODY: Final = 16_384
OPERATORS: Final = "default"
"""A claim takes runs of all namespaces, with the secrets that sign them: not for keys of a tenant."""

ANONYMOUS: Final = "api"  # heartbeats and reports are fenced by their token, not by the worker's name


@router.post(
    "/claim", response_model=ClaimedView, responses=problems(422), summary="Take work, waiting for it if need be"
)
async def claim(request: Request, body: ClaimBody, principal: RunsClaimer) -> Response:
    """Ends early when the worker hangs up; what it was granted meanwhile is given back."""
    context = context_of(request)
    if principal.namespace != OPERATORS:
        raise NotAllowed("workers serve every namespace, so their keys belong to the namespace of the operators")
    leasing = context.leasing_for(body.worker)
    started = context.clock.boottime()
    assignments = await _claim_while_connected(request, leasing, body)
    answer = WireClaimed(
        runs=tuple(to_wire(assignment) for assignment in assignments),
        now=context.clock.now(),
        waited_s=context.clock.boottime() - started,
    )
    return json_answer(answer)


async def _claim_while_connected(request: Request, leasing: Leasing, body: ClaimBody) -> list[Assignment]:
    """Claim; when the worker hangs up meanwhile, what it was granted is given back at once."""
    claiming = asyncio.ensure_future(leasing.claim(queue=body.queue, limit=body.limit, wait_s=body.wait_s))
    leaving = asyncio.ensure_future(_disconnect(request))
    try:
        await asyncio.wait({claiming, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if claiming.done() and not leaving.done():
            return claiming.result()
        leasing.stop_waiting()
        assignments = await claiming
        await leasing.release([(assignment.key, assignment.token) for assignment in assignments])
        return []
    finally:
        leaving.cancel()


async def _disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


@router.post("/heartbeat", response_model=StatusList, responses=problems(404, 422), summary="Extend leases")
async def heartbeat(request: Request, body: HeldList, _principal: RunsClaimer) -> Response:
    held = _read_all(body)
    return _statuses(held, await _leasing(request).extend(held))


@router.post("/permit", response_model=StatusList, responses=problems(404, 422), summary="May these attempts begin?")
async def permit(request: Request, body: HeldList, _principal: RunsClaimer) -> Response:
    held = _read_all(body)
    return _statuses(held, await _leasing(request).permit(held))


@router.post("/release", response_model=ReleasedView, responses=problems(404, 422), summary="Give leases back")
async def release(request: Request, body: HeldList, _principal: RunsClaimer) -> Response:
    released = await _leasing(request).release(_read_all(body))
    return json_answer({"released": released})


@finish_router.post("/finish", response_model=FinishedList, responses=problems(422), summary="Report ended attempts")
async def finish(request: Request, body: FinishList, _principal: RunsClaimer) -> Response:
    items = [_read_listed_finish(run, f"runs[{place}]") for place, run in enumerate(body.runs)]
    finished = await _leasing(request).finish(items)
    return json_answer({"runs": [finished_to_wire(answer) for answer in finished]})


@router.post(
    "/{run_id}/finish", response_model=FinishedView, responses=problems(404, 409, 422), summary="Report how one ended"
)
async def finish_one(request: Request, run_id: str, body: OutcomeBody, _principal: RunsClaimer) -> Response:
    (answer,) = await _leasing(request).finish([_read_finish(run_id, body)])
    if answer.result == FinishResult.LEASE_LOST:
        raise LeaseLost
    if answer.result == FinishResult.RUN_TERMINAL:
        raise RunTerminal
    return json_answer(finished_to_wire(answer))


@time_router.get("/time", response_model=TimeView, responses=problems(), summary="The database's time")
async def time(request: Request, _principal: RunsClaimer) -> Response:
    return json_answer({"now": context_of(request).clock.now()})


def _leasing(request: Request) -> Leasing:
    context: ApiContext = context_of(request)
    return context.leasing_for(ANONYMOUS)


def _read_all(body: HeldList) -> list[Held]:
    return [_read_held(run, f"runs[{place}]") for place, run in enumerate(body.runs)]


def _read_held(body: HeldBody, field: str) -> Held:
    try:
        return held_from_wire(WireHeld(body.run_id, body.token))
    except (IdInvalid, RequestError) as error:
        raise _refused_item(error, field) from None


def _read_listed_finish(body: FinishBody, field: str) -> Finish:
    try:
        return _read_finish(body.run_id, body)
    except (IdInvalid, RequestError) as error:
        raise _refused_item(error, field) from None


def _refused_item(error: IdInvalid | RequestError, field: str) -> RequestError:
    """In a list, an id that is none is a fault of the body and not a thing that was not found."""
    return RequestError(error.detail, field=f"{field}.{error.field or 'run_id'}", remedy=error.remedy)


def _read_finish(run_id: str, body: OutcomeBody | FinishBody) -> Finish:
    response = None
    if body.response is not None:
        response = WireResponse(
            headers=tuple((pair[0], pair[1]) for pair in body.response.headers),
            body=_read_body(body.response.body),
            truncated=body.response.truncated,
        )
    return finish_from_wire(
        WireFinish(
            run_id=run_id,
            token=body.token,
            outcome=OutcomeKind(body.outcome),
            started_at=body.started_at,
            duration_us=body.duration_us,
            status=body.status,
            error=body.error,
            retry_after_s=body.retry_after_s,
            response=response,
        )
    )


def _read_body(text: str) -> bytes:
    try:
        body = base64.b64decode(text, validate=True)
    except ValueError:
        raise RequestError("a response body is base64", field="response.body") from None
    if len(body) > LARGEST_KEPT_BODY:
        raise RequestError(f"a response body has {LARGEST_KEPT_BODY} bytes at most", field="response.body")
    return body


def _statuses(held: list[Held], statuses: list[LeaseStatus]) -> Response:
    pairs = zip(held, statuses, strict=True)
    return json_answer({"runs": [WireStatus(format_run_id(key), status) for (key, _), status in pairs]})
