"""`onbeat next`: when a cron expression fires. Needs no server; the dispatcher uses the same function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from onbeat.cli.connection import JsonOption
from onbeat.cli.terminal import clean, print_json, print_table

if TYPE_CHECKING:
    from onbeat.domain.preview import Preview


def next_fires(
    expression: Annotated[
        str, typer.Argument(metavar="EXPR", help="A cron expression in quotes, or a macro such as @daily.")
    ],
    tz: Annotated[str, typer.Option("--tz", metavar="ZONE", help="IANA time zone, such as Europe/Berlin.")] = "UTC",
    after: Annotated[
        str | None, typer.Option("--after", metavar="RFC3339", help="Strictly later than this. Default: now.")
    ] = None,
    count: Annotated[int, typer.Option("--count", min=1, max=10_000, help="How many.")] = 5,
    as_json: JsonOption = False,
) -> None:
    """The next instants of a cron expression, in words, and what daylight saving does to it."""
    from onbeat.domain.errors import DefinitionError
    from onbeat.domain.instants import parse_instant
    from onbeat.domain.model import CronSchedule
    from onbeat.domain.preview import preview

    if after is not None:
        after_us = parse_instant(after, field="--after")
    else:
        from onbeat.clock import host_time_us

        after_us = host_time_us()
    try:
        found = preview((CronSchedule(expression, tz),), job_id=None, after=after_us, count=count)
    except DefinitionError as error:  # there is one schedule only, so its place need not be told
        field = (error.field or "").removeprefix("schedules[0].")
        raise DefinitionError(error.reason_code, error.detail, field=field, remedy=error.remedy) from None
    if as_json:
        _print_as_json(found)
    else:
        _print(found)


def _print_as_json(found: Preview) -> None:
    from onbeat.domain.instants import format_instant

    print_json(
        {
            "fires": [format_instant(instant.at) for instant in found.instants],
            "explain": {
                "words": found.schedules[0].text,
                "timezone": found.timezones[0],
                "local": [instant.local[0] for instant in found.instants],
                "notes": [*found.schedules[0].notes, *found.notes],
                "tzdata": found.tzdata_version,
            },
        }
    )


def _print(found: Preview) -> None:
    from onbeat.domain.instants import format_instant

    print(f"{clean(found.schedules[0].text)}  ({found.timezones[0]}, tzdata {found.tzdata_version})")
    print_table(
        (found.timezones[0], "UTC", "note"),
        [(instant.local[0], format_instant(instant.at), "; ".join(instant.notes)) for instant in found.instants],
        empty="Nothing is left.",
    )
    for note in (*found.schedules[0].notes, *found.notes):
        print(f"note: {clean(note)}")
