"""`onbeat serve` and `onbeat worker` as an operator runs them, with short leases and loopback allowed."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path

import httpx
from tests.support.database import Data
from tests.support.process import QUICK, ServerProcess, running
from tests.support.starting import run_fork, start_fork, start_interpreter

LOOPBACK = {"ONBEAT_ALLOW_HTTP": "true", "ONBEAT_ALLOW_NETWORKS": "127.0.0.0/8", "ONBEAT_ALLOW_PORTS": ""}
NO_SETTINGS: Mapping[str, str] = {}


def log_beside(data: Data, name: str) -> Path:
    """A data file has its logs beside it; those of nodes on a server are not kept."""
    return data.with_name(name) if isinstance(data, Path) else Path(os.devnull)


async def make_key(data: Data, *scopes: str) -> str:
    """As an operator makes it: on the data file, before the server runs."""
    command = ("-m", "onbeat", "keys", "create", "--data", str(data), "--name", "test", "--json")
    output = await run_fork(*command, *(part for scope in scopes for part in ("--scope", scope)))
    return str(json.loads(output)["key"])


def serving(
    data: Data, *, port: int | None = None, settings: Mapping[str, str] = NO_SETTINGS
) -> AbstractAsyncContextManager[ServerProcess]:
    """`onbeat serve` that delivers nothing itself."""
    return running(
        lambda port: ["-m", "onbeat", "serve", "--data", str(data), "--port", str(port)],
        log=log_beside(data, "server.log"),
        port=port,
        env=QUICK | LOOPBACK | {"ONBEAT_WORKERS": "0"} | dict(settings),
        start=start_fork,
    )


def delivering(
    url: str, *, log: Path, settings: Mapping[str, str] = NO_SETTINGS
) -> AbstractAsyncContextManager[ServerProcess]:
    """`onbeat serve` that delivers, on a server's database."""
    return running(
        lambda port: ["-m", "onbeat", "serve", "--port", str(port)],
        log=log,
        env=QUICK | LOOPBACK | {"ONBEAT_DATA": url} | dict(settings),
    )


@asynccontextmanager
async def two_nodes(
    url: str, key: str, *, logs: Path, settings: Mapping[str, str] = NO_SETTINGS
) -> AsyncIterator[tuple[list[ServerProcess], httpx.AsyncClient]]:
    """Two `onbeat serve` that deliver, on one server's database and both ready, and a client of the first."""
    async with AsyncExitStack() as stack:
        servers = [
            await stack.enter_async_context(delivering(url, log=logs / f"{name}.log", settings=settings))
            for name in ("one", "two")
        ]
        for server in servers:
            assert await server.wait_ready()
        headers = {"authorization": f"Bearer {key}"}
        async with httpx.AsyncClient(base_url=servers[0].url, headers=headers, timeout=20) as http:
            yield servers, http


def working(
    server: str,
    key: str,
    data: Data,
    *,
    concurrency: int = 4,
    settings: Mapping[str, str] = NO_SETTINGS,
    inside: Sequence[str] = (),
) -> AbstractAsyncContextManager[ServerProcess]:
    """`onbeat worker`; `inside` is a script that runs it, with its arguments, before anything is imported."""
    return running(
        lambda _port: [*inside, "-m", "onbeat", "worker", "--server", server, "--concurrency", str(concurrency)],
        log=log_beside(data, "worker.log"),
        env=QUICK | LOOPBACK | {"ONBEAT_API_KEY": key} | dict(settings),
        start=start_interpreter if inside else start_fork,
    )
