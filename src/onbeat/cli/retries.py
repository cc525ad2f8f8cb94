"""`onbeat retries …`: what a retry policy will do. Needs no server; the scheduler uses the same functions."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from onbeat.cli.connection import JsonOption
from onbeat.cli.terminal import print_json, print_table

app = typer.Typer(help="See what a retry policy does.", no_args_is_help=True)


@app.command("preview")
def preview_retries(
    max_attempts: Annotated[int, typer.Option("--max-attempts", min=1, max=100, help="How many at most.")] = 5,
    backoff: Annotated[
        Literal["exponential", "fixed", "table"] | None,
        typer.Option("--backoff", help="How waits grow. Default: exponential, or table with --table."),
    ] = None,
    initial: Annotated[
        float, typer.Option("--initial", metavar="S", min=0.001, max=3_600, help="The first wait, or the fixed one.")
    ] = 1.0,
    factor: Annotated[float, typer.Option("--factor", min=1, max=100, help="How fast waits grow.")] = 4.0,
    cap: Annotated[str, typer.Option("--cap", metavar="LENGTH", help="The longest wait of exponential.")] = "1h",
    table: Annotated[
        str | None, typer.Option("--table", metavar="S,S,…", help="The waits in seconds; the last one repeats.")
    ] = None,
    max_age: Annotated[
        str, typer.Option("--max-age", metavar="LENGTH", help="No attempt starts later than this after the run.")
    ] = "24h",
    timeout: Annotated[str, typer.Option("--timeout", metavar="LENGTH", help="How long an attempt may take.")] = "30s",
    as_json: JsonOption = False,
) -> None:
    """When each attempt of a failing run starts: at the earliest and at the latest, from the start of the first."""
    from onbeat.domain.backoff import check_retry, preview_ladder
    from onbeat.domain.duration import parse_duration
    from onbeat.domain.model import SECOND_US, RetryPolicy

    policy = RetryPolicy(
        max_attempts=max_attempts,
        backoff=backoff or ("exponential" if table is None else "table"),
        initial_s=initial,
        factor=factor,
        cap_s=parse_duration(cap, field="--cap"),
        table_s=() if table is None else _read_table(table),
        max_age_s=parse_duration(max_age, field="--max-age"),
    )
    check_retry(policy)
    ladder = preview_ladder(policy, timeout_s=parse_duration(timeout, field="--timeout"))
    rows = [(rung.attempt, rung.earliest_us / SECOND_US, rung.latest_us / SECOND_US) for rung in ladder.rungs]
    if as_json:
        print_json(
            {
                "attempts": [
                    {"attempt": attempt, "earliest_s": earliest_s, "latest_s": latest_s}
                    for attempt, earliest_s, latest_s in rows
                ],
                "attempts_at_least": ladder.attempts_at_least,
                "ends_with": ladder.ends_with,
            }
        )
        return
    print_table(
        ("attempt", "earliest", "latest"),
        [(str(attempt), f"{earliest_s:g} s", f"{latest_s:g} s") for attempt, earliest_s, latest_s in rows],
        empty="",
    )
    if ladder.attempts_at_least < len(rows):
        print(f"slow ones end after attempt {ladder.attempts_at_least}: max_age passes first")
    print(f"ends with: {ladder.ends_with}")


def _read_table(text: str) -> tuple[float, ...]:
    from onbeat.domain.errors import RequestError

    try:
        waits = tuple(float(part) for part in text.split(","))
    except ValueError:
        waits = ()
    if not waits or not all(0 <= wait <= 86_400 for wait in waits):
        raise RequestError("not a list of seconds", field="--table", remedy="write it like 1,30,600")
    return waits
