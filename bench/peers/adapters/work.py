"""What every Python peer is told, and the call that each of its jobs makes. Runs in the peers' environment."""

import asyncio
import json
import os
import sys
from datetime import UTC, datetime

import aiohttp

URL = os.environ["WORK_URL"]
JOBS = int(os.environ["WORK_JOBS"])
DUE_AT = datetime.fromtimestamp(int(os.environ["WORK_DUE_AT"]), UTC)
STORE = os.environ["WORK_STORE"]
AT_ONCE = 100
BODY = json.dumps({"report": "daily", "customer": 4711, "padding": "x" * 150}).encode()

PREPARES = sys.argv[1:] == ["prepare"]

_sessions: list[aiohttp.ClientSession] = []


def headers_of(number: int) -> dict[str, str]:
    """What the receiver counts by."""
    return {
        "webhook-id": f"job-{number}",
        "onbeat-scheduled-at": DUE_AT.isoformat(),
        "content-type": "application/json",
    }


async def call(number: int) -> None:
    """One POST over a kept-alive connection."""
    if not _sessions:
        _sessions.append(aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=AT_ONCE)))
    async with _sessions[0].post(URL, data=BODY, headers=headers_of(number)) as answer:
        await answer.read()
        answer.raise_for_status()


async def for_ever() -> None:
    """Until the process is ended."""
    await asyncio.Event().wait()
