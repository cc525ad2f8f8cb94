"""Nodes and remote workers that reach the outside through a proxy only, as set by an operator."""

from __future__ import annotations

import base64
from pathlib import Path

import httpx
import pytest
from tests.support.connect_proxy import proxying
from tests.support.fleet import make_key, serving, working
from tests.support.receiver import receiving

AUTHORIZATION = "Basic " + base64.b64encode(b"onbeat:from-a-file").decode()


@pytest.mark.parametrize("who", ["node", "worker"])
async def test_fires_go_through_the_proxy_whose_password_stands_in_a_file(data: Path, who: str) -> None:
    secret = data.with_name("proxy")
    key = await make_key(data, "admin")
    async with receiving() as receiver, proxying(authorization=AUTHORIZATION) as proxy:
        secret.write_text(f"http://onbeat:from-a-file@127.0.0.1:{proxy.port}\n")
        through = {"ONBEAT_EGRESS_PROXY_FILE": str(secret)}
        at_node = through | {"ONBEAT_WORKERS": "4"} if who == "node" else {}
        async with serving(data, settings=at_node) as server:
            assert await server.wait_ready()
            async with httpx.AsyncClient(base_url=server.url, headers={"authorization": f"Bearer {key}"}) as http:
                job = {"name": "outside", "schedules": [{"every": 3_600}], "target": {"url": receiver.url}}
                made = (await http.post("/v1/jobs", json=job)).json()
                await http.post(f"/v1/jobs/{made['id']}/trigger", json={})
            if who == "node":
                await receiver.wait_for(lambda calls: len(calls) == 1)
            else:
                async with working(server.url, key, data, settings=through):
                    await receiver.wait_for(lambda calls: len(calls) == 1)
    assert [asked.line for asked in proxy.asked] == [f"CONNECT 127.0.0.1:{receiver.port} HTTP/1.1"]
    assert "proxy-authorization" not in receiver.calls[0].headers
    for log in data.parent.glob("*.log"):
        assert "from-a-file" not in log.read_text()


async def test_a_proxy_that_refuses_is_named_in_the_attempt_and_the_run_is_tried_again(data: Path) -> None:
    key = await make_key(data, "admin")
    async with receiving() as receiver, proxying(authorization=AUTHORIZATION) as proxy:
        settings = {"ONBEAT_EGRESS_PROXY": proxy.url, "ONBEAT_WORKERS": "4"}
        async with serving(data, settings=settings) as server:
            assert await server.wait_ready()
            async with httpx.AsyncClient(base_url=server.url, headers={"authorization": f"Bearer {key}"}) as http:
                job = {
                    "name": "outside",
                    "schedules": [{"every": 3_600}],
                    "target": {"url": receiver.url},
                    "retry": {"initial_s": 0.1},
                }
                made = (await http.post("/v1/jobs", json=job)).json()
                run = (await http.post(f"/v1/jobs/{made['id']}/trigger", json={})).json()
                await proxy.wait_for(lambda asked: len(asked) == 2)
                proxy.authorization = None
                await receiver.wait_for(lambda calls: len(calls) == 1)
                attempts = (await http.get(f"/v1/runs/{run['id']}/attempts")).json()["items"]
    assert attempts[0]["outcome"] == "proxy_error"
    assert attempts[0]["error"] == "the egress proxy does not accept our user and password (407)"
