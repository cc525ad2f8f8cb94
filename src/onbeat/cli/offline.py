"""Commands on the data file itself, and on the API where a server holds the file."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onbeat.cli.connection import DEFAULT_SERVER, connect
from onbeat.domain.errors import DataFileInUse

if TYPE_CHECKING:
    from onbeat.app.services import Services
    from onbeat.client.api import Api
    from onbeat.config import Settings

NAMESPACE = "default"

OptionalServer = Annotated[
    str | None,
    typer.Option(
        "--server",
        envvar="ONBEAT_URL",
        metavar="URL",
        help="Ask this server, with an admin key. Default: the data file, or the local server that holds it.",
    ),
]


def on_data_file(settings: Settings, work: Callable[[Services], Awaitable[Any]]) -> Any:
    """What `work` answers. Raises DataFileInUse while a server holds the file."""

    async def run() -> Any:
        from onbeat.app.services import open_services

        async with open_services(settings) as services:
            return await work(services)

    return asyncio.run(run())


def on_file_or_server(
    server: str | None,
    settings: Settings,
    *,
    file: Callable[[Services], Awaitable[Any]],
    api: Callable[[Api], Any],
) -> Any:
    """Do it by the server that was named; else on the data file; else by the local server that holds the file."""
    from onbeat.client.api import ServerUnreachable

    if server is not None:
        with connect(server) as named:
            return api(named)
    try:
        return on_data_file(settings, file)
    except DataFileInUse as in_use:
        try:
            with connect(DEFAULT_SERVER) as local:
                return api(local)
        except ServerUnreachable:
            raise DataFileInUse(
                in_use.detail, remedy="name the server that holds it with --server, or stop it"
            ) from None
