"""`onbeat serve`: a whole scheduler in one process."""

from __future__ import annotations

from typing import Annotated

import typer

from onbeat.cli.processes import ConfigOption, DataOption, run_process, settings_from


def serve(
    data: DataOption = None,
    host: Annotated[str | None, typer.Option(help="Address to listen on. Default: the setting `host`.")] = None,
    port: Annotated[int | None, typer.Option(help="Port to listen on. Default: the setting `port`.")] = None,
    config: ConfigOption = None,
) -> None:
    """Run the scheduler: fires, delivers, answers the API. API keys are required.

    SIGTERM stops it in order; a second signal at once. Exit code 75 says that runs were still in flight after
    `drain_s` and were given back.
    """
    from onbeat.app.node import serve as serve_until_stopped

    settings = settings_from(config, data=data, host=host, port=port)
    run_process(serve_until_stopped(settings), log_level=settings.log_level)
