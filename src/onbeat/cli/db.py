"""`onbeat db …`: the data file itself."""

from __future__ import annotations

import typer

from onbeat.cli import backups
from onbeat.cli.connection import JsonOption
from onbeat.cli.offline import on_data_file
from onbeat.cli.processes import DataOption, settings_from
from onbeat.cli.terminal import print_fields, print_json

app = typer.Typer(help="The data file: check it, back it up, bring it to this version's schema.", no_args_is_help=True)
app.command("backup")(backups.backup)
app.command("restore")(backups.restore)


@app.command("check")
def check(data: DataOption = None, as_json: JsonOption = False) -> None:
    """Read the whole file and compare it with its indexes. Also while a server runs; changes nothing."""
    from onbeat.cli.data_file import inspect_file

    found = inspect_file(settings_from(data=data).data, reads_everything=True)
    answer = {
        "file": str(found.path),
        "bytes": found.size,
        "schema_version": found.schema_version,
        "newest_schema_version": found.newest_schema_version,
        "problems": list(found.problems),
    }
    if as_json:
        print_json(answer)
    else:
        print_fields([(name, value) for name, value in answer.items() if name != "problems"])
        print("\n".join(found.problems) or "no problem found")
    if found.problems:
        raise typer.Exit(1)


@app.command("upgrade")
def upgrade(data: DataOption = None, as_json: JsonOption = False) -> None:
    """Bring the file to this version's schema, or create it. A server does the same when it starts."""
    from onbeat.cli.data_file import inspect_file

    settings = settings_from(data=data)
    before = inspect_file(settings.data, may_be_missing=True).schema_version

    async def opened(_: object) -> None:
        """Opening the store is what upgrades it."""

    on_data_file(settings, opened)
    after = inspect_file(settings.data).schema_version
    if as_json:
        print_json({"from": before, "to": after})
    else:
        print(f"schema version {after}" + ("" if before == after else f", was {before}"))
