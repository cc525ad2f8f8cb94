"""`onbeat db …`: the database itself, a data file or one on a PostgreSQL server."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated, Any

import typer

from onbeat.cli import backups, moving
from onbeat.cli.connection import JsonOption
from onbeat.cli.offline import on_data_file
from onbeat.cli.processes import DataOption, settings_from
from onbeat.cli.terminal import print_fields, print_json
from onbeat.domain.errors import ConfigError
from onbeat.store.database_url import hide_password, is_postgres_url

if TYPE_CHECKING:
    from onbeat.config import Settings

app = typer.Typer(
    help="The database: check it, back it up, move it, bring it to this version's schema.", no_args_is_help=True
)
app.command("backup")(backups.backup)
app.command("restore")(backups.restore)
app.command("copy")(moving.copy)


@app.command("check")
def check(data: DataOption = None, as_json: JsonOption = False) -> None:
    """Read the whole database and compare its parts. Also while servers run; changes nothing."""
    url = settings_from(data=data).data
    answer = _check_database(url) if is_postgres_url(url) else _check_file(url)
    problems: list[str] = answer["problems"]
    if as_json:
        print_json(answer)
    else:
        print_fields([(name, value) for name, value in answer.items() if name != "problems"])
        print("\n".join(problems) or "no problem found")
    if problems:
        raise typer.Exit(1)


@app.command("upgrade")
def upgrade(
    data: DataOption = None,
    citus: Annotated[
        bool,
        typer.Option(
            "--citus", help="Then spread the tables over the servers of a Citus cluster. There is no way back."
        ),
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Bring the database to this version's schema, or create it.

    A server does the same with its data file when it starts. On PostgreSQL this comes before the first node of a new
    version, while the others go on working; with --citus no node may be at work.
    """
    settings = settings_from(data=data)
    if is_postgres_url(settings.data):
        before, after, is_distributed = _upgrade_database(settings.data, on_citus=citus)
    elif citus:
        raise ConfigError(
            "a data file cannot be spread over servers", field="data", remedy="name a PostgreSQL database"
        )
    else:
        (before, after), is_distributed = _upgrade_file(settings), False
    if as_json:
        print_json({"from": before, "to": after, "distributed": is_distributed})
    else:
        spread = ", spread by slot" if is_distributed else ""
        print(f"schema version {after}{spread}" + ("" if before == after else f", was {before}"))


def _check_file(url: str) -> dict[str, Any]:
    from onbeat.cli.data_file import inspect_file

    found = inspect_file(url, reads_everything=True)
    return {
        "file": str(found.path),
        "bytes": found.size,
        "schema_version": found.schema_version,
        "newest_schema_version": found.newest_schema_version,
        "problems": list(found.problems),
    }


def _check_database(url: str) -> dict[str, Any]:
    from onbeat.store.postgres.inspection import inspect_database

    found = asyncio.run(inspect_database(url, reads_everything=True))
    return {
        "database": hide_password(url),
        "server": f"PostgreSQL {found.server_version}",
        "bytes": found.size,
        "schema_version": found.schema.version,
        "newest_schema_version": found.newest_schema_version,
        "distributed": found.schema.is_distributed,
        "problems": list(found.problems),
    }


def _upgrade_file(settings: Settings) -> tuple[int, int]:
    from onbeat.cli.data_file import inspect_file

    async def opened(_: object) -> None:
        """Opening the store is what upgrades it."""

    before = inspect_file(settings.data, may_be_missing=True).schema_version
    on_data_file(settings, opened)
    return before, inspect_file(settings.data).schema_version


def _upgrade_database(url: str, *, on_citus: bool) -> tuple[int, int, bool]:
    from onbeat.store.postgres.store import upgrade_database
    from onbeat.store.sqlite.migrate import DEFAULT_SLOTS

    before, after = asyncio.run(upgrade_database(url, slots=DEFAULT_SLOTS, on_citus=on_citus))
    return before.version, after.version, after.is_distributed
