"""`onbeat db copy`."""

from __future__ import annotations

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from onbeat.cli.connection import JsonOption
from onbeat.cli.processes import settings_from
from onbeat.cli.terminal import print_json, print_table
from onbeat.domain.errors import ConfigError
from onbeat.store.database_url import holds_password, is_postgres_url

if TYPE_CHECKING:
    from onbeat.app.moving import CopiedDatabase


def copy(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="A data file, or a URL postgresql://…")],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="The other of the two.")],
    force: Annotated[
        bool, typer.Option("--force", help="Replace all that is in the target; begin an interrupted copy anew.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Copy everything from a data file to PostgreSQL, or back, and compare both. Nobody may be using either.

    A copy that was interrupted goes on where it was when the same command is given again.
    """
    from onbeat.app.moving import copy_database

    for url in (source, target):
        if holds_password(url):
            raise ConfigError(
                "a password on the command line is seen by everybody on this machine",
                remedy="put it into ~/.pgpass or PGPASSWORD",
            )

    def tell(table: str, *, done: int, rows: int) -> None:
        if not as_json:
            print(f"{table}: {done} of {rows}", file=sys.stderr, flush=True)

    copied = asyncio.run(copy_database(settings_from(), source, target, replaces=force, progress=tell))
    if as_json:
        print_json(_as_json(copied))
        return
    print_table(
        ("table", "rows", "of them found", "checksum of both"),
        [(table.name, table.rows, table.found, table.checksum) for table in copied.tables],
        empty="",
    )
    print(f"{copied.rows} rows are the same in both")
    if copied.slots != copied.slots_before:
        print(f"jobs are in {copied.slots} slots now, before in {copied.slots_before}")
    print(_what_next(copied, target))


def _what_next(copied: CopiedDatabase, target: str) -> str:
    if copied.key_file is None:
        return "start the target with the same master_key"
    if is_postgres_url(target):
        return f"every node needs the master key: ONBEAT_MASTER_KEY_FILE={copied.key_file}, or a copy of that file"
    return f"put the master key {copied.key_file} beside the target"


def _as_json(copied: CopiedDatabase) -> dict[str, object]:
    return {
        "rows": copied.rows,
        "slots_before": copied.slots_before,
        "slots": copied.slots,
        "master_key_file": None if copied.key_file is None else str(copied.key_file),
        "tables": [
            {"name": table.name, "rows": table.rows, "found": table.found, "checksum": table.checksum}
            for table in copied.tables
        ],
    }
