"""/v1/nodes: the processes that work on this database, for administrators."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Request, Response
from pydantic import Field

from onbeat.api.answers import json_answer, problems
from onbeat.api.auth import Admin
from onbeat.api.context import context_of
from onbeat.api.route import EdgeRoute
from onbeat.api.schemas.base import View, moment
from onbeat.clock import describe_skew
from onbeat.services.node_list import NodeStatus

router = APIRouter(prefix="/v1", tags=["admin"], route_class=EdgeRoute)


class NodeView(View):
    """A process as its last heartbeat shows it. What it does not say of itself is null."""

    name: str
    kind: str
    state: str = Field(description="`alive`, or `silent`: it sent no heartbeat and took no leave")
    started_at: str | None
    seen_at: str | None
    version: str | None
    pid: int | None
    workers: int | None = Field(description="How many attempts it runs at once")
    slots: int | None = Field(description="How many slots it serves")
    clock_skew_s: float | None = Field(description="How far its host's clock is ahead of the database's")
    warnings: list[str]


class NodeList(View):
    """Every process, by name; those that died are forgotten after a day."""

    items: list[NodeView]


@router.get("/nodes", response_model=NodeList, responses=problems(), summary="List nodes")
async def list_nodes(request: Request, _principal: Admin) -> Response:
    return json_answer({"items": [_view(node) for node in await context_of(request).nodes.find()]})


def _view(node: NodeStatus) -> dict[str, Any]:
    skew_us = node.detail.clock_skew_us
    warning = None if skew_us is None else describe_skew(skew_us)
    return {
        "name": node.info.name,
        "kind": node.info.kind,
        "state": "alive" if node.is_alive else "silent",
        "started_at": moment(node.info.started_at),
        "seen_at": moment(node.info.seen_at),
        "version": node.detail.version,
        "pid": node.detail.pid,
        "workers": node.detail.workers,
        "slots": node.detail.slots,
        "clock_skew_s": None if skew_us is None else skew_us / 1e6,
        "warnings": [] if warning is None else [warning],
    }
