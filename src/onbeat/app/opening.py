"""How a node comes to its services: a PostgreSQL server that is not there yet is waited for.

Meanwhile the node answers its health checks, and says that it is not ready.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from importlib.metadata import version
from typing import Any, Final, TypeVar

import structlog

from onbeat.api.awaiting import build_awaiting_api
from onbeat.app.api_server import ApiServer
from onbeat.app.services import Services, open_services
from onbeat.config import Settings
from onbeat.domain.egress import EgressRules
from onbeat.domain.errors import StoreUnavailable
from onbeat.loops.supervisor import StopSignal
from onbeat.store.database_url import hide_password, is_postgres_url

log = structlog.get_logger(__name__)

T = TypeVar("T")

FIRST_WAIT_S: Final = 0.5
LONGEST_WAIT_S: Final = 5.0
"""A node serves at most this long after its database does."""


async def open_for_node(
    stack: contextlib.AsyncExitStack,
    settings: Settings,
    *,
    egress: EgressRules | None,
    stop: StopSignal,
    server: ApiServer,
) -> Services | None:
    """The services, which end with `stack`. None: told to stop while the database was waited for.

    Raises what `open_services` raises, and ConfigError where the master key is another one or `server` cannot listen;
    StoreUnavailable only for a data file, whose disk does not come by itself.
    """
    if not is_postgres_url(settings.data):
        return await _open(stack, settings, egress=egress)
    await server.serve(build_awaiting_api(version=version("onbeat")))
    wait_s = FIRST_WAIT_S
    while True:
        try:
            return await _unless_stopped(_open(stack, settings, egress=egress), stop)
        except StoreUnavailable as error:
            log.warning("database_awaited", data=hide_password(settings.data), error=error.detail, wait_s=wait_s)
        await _unless_stopped(asyncio.sleep(wait_s), stop)
        if stop.is_set:
            return None
        wait_s = min(2 * wait_s, LONGEST_WAIT_S)


async def _open(stack: contextlib.AsyncExitStack, settings: Settings, *, egress: EgressRules | None) -> Services:
    async with contextlib.AsyncExitStack() as opening:
        services = await opening.enter_async_context(open_services(settings, egress=egress))
        await services.secrets.check_master_key()
        # A pause that has begun holds before anything fires: that of a backup which was restored paused, above all.
        await services.pauses.keep_up()
        stack.push_async_exit(opening.pop_all())
    return services


async def _unless_stopped(work: Coroutine[Any, Any, T], stop: StopSignal) -> T | None:
    """What `work` answers. None: told to stop before, and it was given up."""
    working, stopping = asyncio.ensure_future(work), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({working, stopping}, return_when=asyncio.FIRST_COMPLETED)
        return await working if working.done() else None
    finally:
        working.cancel()
        stopping.cancel()
        await asyncio.gather(working, stopping, return_exceptions=True)
