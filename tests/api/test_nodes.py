"""/v1/nodes: what heartbeats tell, also of nodes that died and of other releases."""

from __future__ import annotations

import dataclasses

import httpx
import pytest
from tests.api.bodies import BASE_URL, ContextMaker

from onbeat.api.application import build_api
from onbeat.app.services import Services
from onbeat.clock import ManualClock
from onbeat.domain.instants import format_instant
from onbeat.services.membership import SILENT_AFTER_S, Membership
from onbeat.services.node_list import NodeList
from onbeat.store.values import NodeInfo

NOW = 1_800_000_000_000_000


def node(services: Services, name: str, *, clock: ManualClock) -> Membership:
    return Membership(
        name=name,
        about={"version": "1.2.3", "pid": 7, "workers": 50},
        store=services.store,
        clock=clock,
        dispatch=services.dispatch,
        recovery=services.recovery,
        dispatch_wake=services.dispatch_wake,
    )


async def listed(make_context: ContextMaker, services: Services, *, clock: ManualClock) -> list[dict[str, object]]:
    context = dataclasses.replace(make_context(), nodes=NodeList(store=services.store, clock=clock))
    async with httpx.AsyncClient(transport=httpx.ASGITransport(build_api(context)), base_url=BASE_URL) as http:
        answer = await http.get("/v1/nodes")
        assert answer.status_code == 200, answer.text
        return list(answer.json()["items"])


async def test_a_node_tells_what_it_serves_and_whether_its_clock_is_off(
    make_context: ContextMaker, services: Services
) -> None:
    clock = ManualClock(NOW, skew_us=-31_000_000)
    await node(services, "a", clock=clock).beat()
    assert await listed(make_context, services, clock=clock) == [
        {
            "name": "a",
            "kind": "node",
            "state": "alive",
            "started_at": format_instant(NOW),
            "seen_at": format_instant(NOW),
            "version": "1.2.3",
            "pid": 7,
            "workers": 50,
            "slots": 256,
            "clock_skew_s": -31.0,
            "warnings": ["this host's clock is 31.0 s behind the database's"],
        }
    ]


async def test_a_node_that_fell_silent_is_shown_as_such(make_context: ContextMaker, services: Services) -> None:
    clock = ManualClock(NOW)
    for name in ("dead", "left", "living"):
        await node(services, name, clock=clock).beat()
    await node(services, "left", clock=clock).leave()
    clock.advance(SILENT_AFTER_S)
    await node(services, "living", clock=clock).beat()
    shown = await listed(make_context, services, clock=clock)
    assert [(one["name"], one["state"], one["warnings"]) for one in shown] == [
        ("dead", "silent", []),
        ("living", "alive", []),
    ]


@pytest.mark.parametrize("detail", ["{}", "no JSON", '{"pid": "seven"}', '{"zone": "eu-1", "slots": null}'])
async def test_what_another_release_says_of_itself_is_no_error(
    make_context: ContextMaker, services: Services, detail: str
) -> None:
    await services.store.nodes.beat(NodeInfo("other", "worker", started_at=NOW, seen_at=NOW, detail=detail))
    (shown,) = await listed(make_context, services, clock=ManualClock(NOW))
    assert (shown["kind"], shown["pid"], shown["slots"], shown["clock_skew_s"]) == ("worker", None, None, None)
