"""`onbeat worker`: a process that only delivers, next to a server elsewhere."""

from __future__ import annotations

from typing import Annotated

import typer

from onbeat.cli.connection import DEFAULT_SERVER, ServerOption, check_server, read_key
from onbeat.cli.processes import ConfigOption, run_process, settings_from


def worker(
    server: ServerOption = DEFAULT_SERVER,
    key: Annotated[
        str | None,
        typer.Option("--key", metavar="KEY", help="API key with the scope runs:claim. Better: ONBEAT_API_KEY_FILE."),
    ] = None,
    concurrency: Annotated[int, typer.Option("--concurrency", min=1, max=10_000, help="Attempts at once.")] = 50,
    name: Annotated[str | None, typer.Option("--name", help="How it is called in runs. Default: host and pid.")] = None,
    config: ConfigOption = None,
) -> None:
    """Claim runs from a server over HTTP and deliver them from here."""
    from onbeat.app.remote_worker import run_worker

    settings = settings_from(config)
    run_process(
        run_worker(
            server=check_server(server),
            key=read_key(key),
            name=name,
            concurrency=concurrency,
            settings=settings,
        ),
        log_level=settings.log_level,
    )
