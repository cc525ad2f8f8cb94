"""`onbeat next`: when a cron expression fires. Needs no server; the dispatcher uses the same function."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

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
    start_at: Annotated[
        str | None,
        typer.Option("--start-at", metavar="MOMENT", help="Nothing before this: RFC 3339, or local time in --tz."),
    ] = None,
    end_at: Annotated[
        str | None, typer.Option("--end-at", metavar="MOMENT", help="Nothing after this: like --start-at.")
    ] = None,
    max_fires: Annotated[
        int | None,
        typer.Option("--max-fires", min=1, max=1_000_000, help="So many in all, from --start-at or --after on."),
    ] = None,
    dst_gap: Annotated[
        Literal["shift", "skip"] | None,
        typer.Option("--dst-gap", help="What local times do that the clock leaves out. Default: see docs/time.md."),
    ] = None,
    dst_overlap: Annotated[
        Literal["first", "second", "both"] | None,
        typer.Option("--dst-overlap", help="Which of two equal local times fires. Default: see docs/time.md."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """The next instants of a cron expression, in words, and what daylight saving does to it."""
    from onbeat.domain.errors import DefinitionError
    from onbeat.domain.instants import parse_instant, parse_moment
    from onbeat.domain.last_fire import resolve_last_fire
    from onbeat.domain.model import CronSchedule
    from onbeat.domain.preview import preview

    if after is not None:
        after_us = parse_instant(after, field="--after")
    else:
        from onbeat.clock import host_time_us

        after_us = host_time_us()
    schedule = CronSchedule(
        expression,
        tz,
        dst_gap,
        dst_overlap,
        start_at=None if start_at is None else parse_moment(start_at, timezone=tz, field="--start-at"),
        end_at=None if end_at is None else parse_moment(end_at, timezone=tz, field="--end-at"),
        max_fires=max_fires,
    )
    try:
        resolved = resolve_last_fire(schedule, job_id=None, counted_from=after_us, field="schedules[0]")
        found = preview((resolved,), job_id=None, after=after_us, count=count)
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
                "removed": [
                    {
                        "at": None if removed.at is None else format_instant(removed.at),
                        "local": removed.local,
                        "moved_to": None if removed.moved_to is None else format_instant(removed.moved_to),
                        "note": removed.note,
                    }
                    for removed in found.removed
                ],
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
    told = {note for instant in found.instants for note in instant.notes}
    for removed in found.removed:
        if removed.moved_to is not None and any(note.startswith(removed.local) for note in told):
            continue  # said in the table
        print(f"{'removed' if removed.moved_to is None else 'moved'}: {removed.local}: {clean(removed.note)}")
    for note in (*found.schedules[0].notes, *found.notes):
        print(f"note: {clean(note)}")
