"""`onbeat blackouts …`: windows of time in which nothing fires."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from onbeat.cli.connection import DEFAULT_SERVER, JsonOption, ServerOption, connect
from onbeat.cli.terminal import print_fields, print_json, print_table

app = typer.Typer(help="Blackouts: windows of time in which nothing fires.", no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The blackout's name.")]


@app.command("put")
def put_blackout(
    name: NameArgument,
    start: Annotated[
        str | None, typer.Option("--from", metavar="RFC3339", help="A window that comes once begins here.")
    ] = None,
    until: Annotated[str | None, typer.Option("--until", metavar="RFC3339", help="And ends before this.")] = None,
    cron: Annotated[
        str | None, typer.Option("--cron", metavar="EXPR", help="Windows that recur begin here: at most once an hour.")
    ] = None,
    tz: Annotated[str | None, typer.Option("--tz", metavar="ZONE", help="Time zone of --cron. Default: UTC.")] = None,
    duration: Annotated[
        str | None, typer.Option("--duration", metavar="LENGTH", help="And last this long, such as 8h.")
    ] = None,
    tag: Annotated[str | None, typer.Option("--tag", help="Only for jobs with this tag. Default: all jobs.")] = None,
    server: ServerOption = DEFAULT_SERVER,
    as_json: JsonOption = False,
) -> None:
    """Create a blackout, or replace it."""
    fields = {"from": start, "until": until, "cron": cron, "timezone": tz, "duration": duration, "tag": tag}
    with connect(server) as api:
        _show(api.put_blackout(name, {field: value for field, value in fields.items() if value is not None}), as_json)


@app.command("list")
def list_blackouts(server: ServerOption = DEFAULT_SERVER, as_json: JsonOption = False) -> None:
    """Every blackout, by name, past ones too."""
    with connect(server) as api:
        page = api.find_blackouts()
    if as_json:
        print_json(page)
        return
    print_table(
        ("name", "tag", "from", "until", "cron", "zone", "duration"),
        [
            (
                blackout["name"],
                *(
                    "" if blackout.get(field) is None else blackout[field]
                    for field in ("tag", "from", "until", "cron", "timezone", "duration")
                ),
            )
            for blackout in page["items"]
        ],
        empty="No blackouts.",
    )


@app.command("get")
def get_blackout(name: NameArgument, server: ServerOption = DEFAULT_SERVER, as_json: JsonOption = False) -> None:
    """One blackout."""
    with connect(server) as api:
        _show(api.get_blackout(name), as_json)


@app.command("delete")
def delete_blackout(name: NameArgument, server: ServerOption = DEFAULT_SERVER, as_json: JsonOption = False) -> None:
    """Delete a blackout. What it has held back stays skipped."""
    with connect(server) as api:
        api.delete_blackout(name)
    if as_json:
        print_json({"deleted": name})
    else:
        print_fields([("deleted", name)])


def _show(blackout: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(blackout)
    else:
        print_fields(blackout.items())
