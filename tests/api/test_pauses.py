"""/v1/pause, /v1/resume, /v1/pauses, and pauses with an end."""

from __future__ import annotations

from typing import Any

import httpx
import pytest
from tests.api.bodies import created, refused

FAR = "2999-01-01T00:00:00Z"


async def test_a_pause_of_a_tag_is_listed_names_itself_in_its_jobs_and_ends(http: httpx.AsyncClient) -> None:
    job = await created(http, tags=["billing"])
    body = {"scope": {"tag": "billing"}, "note": "audit", "until": FAR, "running": "cancel"}
    paused = (await http.post("/v1/pause", json=body)).json()
    assert paused["jobs"] == 1
    assert paused["last_possible_side_effect_at"] > paused["pause"]["paused_at"]
    assert (await http.get("/v1/pauses")).json() == {"items": [paused["pause"]]}
    assert paused["pause"] | {"paused_at": ""} == body | {"paused_at": ""}
    shown = (await http.get(f"/v1/jobs/{job['id']}")).json()
    assert (shown["state"], shown["reason"], shown["paused_by"]) == ("paused", "audit", "tag:billing")
    refused(await http.post(f"/v1/jobs/{job['id']}/resume"), 409, "state_conflict")
    assert (await http.post("/v1/resume", json={"scope": {"tag": "billing"}})).json() == {"jobs": 1}
    assert (await http.get(f"/v1/jobs/{job['id']}")).json()["state"] == "active"
    refused(await http.post("/v1/resume", json={"scope": {"tag": "billing"}}), 409, "state_conflict")


async def test_new_jobs_are_paused_while_everything_is(http: httpx.AsyncClient) -> None:
    assert (await http.post("/v1/pause", json={"scope": "all"})).json()["jobs"] == 0
    job = await created(http)
    assert (job["state"], job["paused_by"], job["next_fire_at"]) == ("paused", "all", None)
    await http.post("/v1/resume", json={"scope": "all"})
    assert (await http.get(f"/v1/jobs/{job['id']}")).json()["state"] == "active"


async def test_the_end_of_a_pause_is_shown(http: httpx.AsyncClient) -> None:
    job = await created(http)
    paused = (await http.post(f"/v1/jobs/{job['id']}/pause", json={"until": FAR})).json()["job"]
    assert (paused["paused_until"], paused["paused_by"]) == (FAR, None)


@pytest.mark.parametrize("path", ["/v1/pause", "/v1/jobs/{id}/pause"])
@pytest.mark.parametrize("until", ["2020-01-01T00:00:00Z", "tomorrow", ""])
async def test_an_end_that_is_past_or_no_instant_is_refused(http: httpx.AsyncClient, path: str, until: str) -> None:
    job = await created(http)
    body = {"until": until} | ({"scope": "all"} if path == "/v1/pause" else {})
    assert refused(await http.post(path.format(id=job["id"]), json=body), 422, "field_invalid")["field"] == "until"


@pytest.mark.parametrize("scope", [None, "some", {}, {"tag": ""}, {"tag": "a", "key": "b"}, ["all"], 7])
async def test_a_scope_that_is_none_is_refused(http: httpx.AsyncClient, scope: Any) -> None:
    for path in ("/v1/pause", "/v1/resume"):
        assert (await http.post(path, json={"scope": scope})).status_code == 422
    assert (await http.get("/v1/pauses")).json() == {"items": []}
