"""What the commands that start a process share: settings from the command line, logs, the event loop."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from onbeat.config import Settings

ConfigOption = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="Settings in TOML. Default: onbeat.toml, if there.")
]
DataOption = Annotated[
    str | None,
    typer.Option("--data", metavar="FILE", help="The data file, or a URL postgresql://… Default: the setting `data`."),
]


def settings_from(config: Path | None = None, **overrides: object) -> Settings:
    """All settings; what was given on the command line wins."""
    from onbeat.config import load_settings
    from onbeat.domain.errors import ConfigError
    from onbeat.store.database_url import holds_password

    if holds_password(str(overrides.get("data"))):
        raise ConfigError(
            "a password on the command line is seen by everybody on this machine",
            field="--data",
            remedy="put the URL into ONBEAT_DATA or a file named by ONBEAT_DATA_FILE, or the password into ~/.pgpass",
        )
    return load_settings(file=config, overrides=overrides)


def run_process(process: Coroutine[object, object, int], *, log_level: str) -> None:
    """Run until it stops by itself or by a signal, then exit with its code."""
    import asyncio

    import uvloop

    from onbeat.app.process import spare_the_collector
    from onbeat.telemetry import configure_logging

    configure_logging(level=log_level)
    spare_the_collector()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        raise typer.Exit(runner.run(process))
