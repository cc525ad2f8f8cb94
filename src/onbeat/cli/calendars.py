"""`onbeat calendars …`: named sets of days that schedules exclude or keep to."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from onbeat.cli.connection import DEFAULT_SERVER, JsonOption, ServerOption, connect
from onbeat.cli.moments import in_zone
from onbeat.cli.terminal import print_fields, print_json, print_table
from onbeat.cli.text_files import read_text

app = typer.Typer(help="Calendars: days on which jobs do not fire, or only fire.", no_args_is_help=True)

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The calendar's name.")]
FileArgument = Annotated[Path, typer.Argument(metavar="FILE", help="The .ics file; - is standard input.")]

SHOWN_DATES = 20


@app.command("put")
def put_calendar(
    name: NameArgument,
    date: Annotated[
        list[str] | None,
        typer.Option("--date", metavar="DATE", help="2026-12-25, or 2026-12-24..2027-01-01; may be repeated."),
    ] = None,
    weekday: Annotated[list[str] | None, typer.Option("--weekday", help="sun to sat; may be repeated.")] = None,
    cron: Annotated[
        list[str] | None, typer.Option("--cron", metavar="EXPR", help="Days, as in '* * 25 12 *'; may be repeated.")
    ] = None,
    holidays: Annotated[
        list[str] | None,
        typer.Option("--holidays", metavar="COUNTRY", help="Public holidays: DE, or DE-BE; may be repeated."),
    ] = None,
    tz: Annotated[
        str | None, typer.Option("--tz", metavar="ZONE", help="Whose days. Default: each schedule's own zone.")
    ] = None,
    server: ServerOption = DEFAULT_SERVER,
    as_json: JsonOption = False,
) -> None:
    """Create a calendar, or replace it with the union of what is given."""
    rules: dict[str, Any] = {
        "timezone": tz,
        "dates": [_range(text) for text in date or ()],
        "weekdays": list(weekday or ()),
        "cron": list(cron or ()),
        "holidays": [_country(text) for text in holidays or ()],
    }
    with connect(server) as api:
        _show(api.put_calendar(name, rules), as_json)


@app.command("import")
def import_calendar(
    name: NameArgument,
    file: FileArgument,
    until: Annotated[
        str | None, typer.Option("--until", metavar="DATE", help="Follow recurrences no further than this.")
    ] = None,
    server: ServerOption = DEFAULT_SERVER,
    as_json: JsonOption = False,
) -> None:
    """Take the days of the all-day events of an .ics file, in place of the calendar's dates."""
    body = {"ics": read_text(file), **({} if until is None else {"until": until})}
    with connect(server) as api:
        _show(api.import_calendar(name, body), as_json)


@app.command("list")
def list_calendars(server: ServerOption = DEFAULT_SERVER, as_json: JsonOption = False) -> None:
    """Every calendar, by name."""
    with connect(server) as api:
        page = api.find_calendars()
    if as_json:
        print_json(page)
        return
    print_table(
        ("name", "version", "updated"),
        [(calendar["name"], calendar["version"], calendar["updated_at"]) for calendar in page["items"]],
        empty="No calendars.",
    )


@app.command("get")
def get_calendar(name: NameArgument, server: ServerOption = DEFAULT_SERVER, as_json: JsonOption = False) -> None:
    """One calendar, with its rules."""
    with connect(server) as api:
        _show(api.get_calendar(name), as_json)


@app.command("delete")
def delete_calendar(name: NameArgument, server: ServerOption = DEFAULT_SERVER, as_json: JsonOption = False) -> None:
    """Delete a calendar. Refused while jobs use it."""
    with connect(server) as api:
        api.delete_calendar(name)
    if as_json:
        print_json({"deleted": name})
    else:
        print_fields([("deleted", name)])


def print_kept_out(told: Sequence[dict[str, Any]], zone: str) -> None:
    """What calendars removed or moved, as a table."""
    print_table(
        ("kept out", "count", "by calendar", "moves to"),
        [
            (
                in_zone(found["at"], zone),
                found["count"],
                found["calendar"],
                "" if found["moved_to"] is None else in_zone(found["moved_to"], zone),
            )
            for found in told
        ],
        empty="Nothing was kept out.",
    )


def _show(calendar: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(calendar)
        return
    dates = [day if isinstance(day, str) else f"{day['from']}..{day['until']}" for day in calendar["dates"]]
    more = [f"and {len(dates) - SHOWN_DATES} more"] if len(dates) > SHOWN_DATES else []
    countries = [
        place["country"] if place["subdivision"] is None else f"{place['country']}-{place['subdivision']}"
        for place in calendar["holidays"]
    ]
    print_fields(
        [
            ("name", calendar["name"]),
            ("version", calendar["version"]),
            ("timezone", calendar["timezone"] or "of each schedule"),
            ("dates", ", ".join([*dates[:SHOWN_DATES], *more])),
            ("weekdays", ", ".join(calendar["weekdays"])),
            ("cron", ", ".join(calendar["cron"])),
            ("holidays", ", ".join(countries)),
            ("events", calendar.get("events")),
            ("ignored", calendar.get("ignored")),
            ("updated", calendar["updated_at"]),
        ]
    )


def _range(text: str) -> str | dict[str, str]:
    first, dots, last = text.partition("..")
    return {"from": first, "until": last} if dots else text


def _country(text: str) -> dict[str, str]:
    country, dash, subdivision = text.partition("-")
    return {"country": country, "subdivision": subdivision} if dash else {"country": country}
