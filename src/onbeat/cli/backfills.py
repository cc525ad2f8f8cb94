"""`onbeat jobs backfill`: make runs of past instants that have none."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from onbeat.cli.connection import DEFAULT_SERVER, JsonOption, ServerOption, connect
from onbeat.cli.terminal import print_fields, print_json

if TYPE_CHECKING:
    from onbeat.client.api import Api

LOOK_EVERY_S = 0.5


def backfill_job(
    job: Annotated[str, typer.Argument(metavar="JOB", help="The job's id (job_…) or its key.")],
    from_: Annotated[str, typer.Option("--from", metavar="RFC3339", help="The first instant that counts.")],
    to: Annotated[str, typer.Option("--to", metavar="RFC3339", help="The first that does not; not in the future.")],
    order: Annotated[Literal["oldest", "newest"], typer.Option("--order", help="Which come first.")] = "oldest",
    rate: Annotated[int, typer.Option("--rate", min=1, max=50, help="Runs created in a second.")] = 1,
    most: Annotated[int, typer.Option("--max", min=1, max=100_000, help="Runs created at most.")] = 100_000,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what it would do.")] = False,
    follow: Annotated[bool, typer.Option("--follow", help="Wait until every run is created.")] = False,
    server: ServerOption = DEFAULT_SERVER,
    as_json: JsonOption = False,
) -> None:
    """Make runs of the planned instants in a range that have none: missed, skipped, or never planned before."""
    request = {"from": from_, "to": to, "order": order, "rate_per_s": rate, "max": most, "dry_run": dry_run}
    with connect(server) as api:
        answer = api.backfill_job(job, request)
        if follow and not dry_run:
            answer = _follow(api, job, answer)
    if as_json:
        print_json(answer)
    elif dry_run:
        print_fields([(name.replace("_", " "), answer[name]) for name in answer])
    else:
        print_fields(
            [(name.replace("_", " "), answer[name]) for name in ("number", "state", "instants", "looked_at", "created")]
        )


def _follow(api: Api, job: str, backfill: Mapping[str, Any]) -> dict[str, Any]:
    """As it is once it has ended. A server that restarts is waited for."""
    from onbeat.client.api import ServerUnreachable

    found = dict(backfill)
    while found["state"] == "running":
        time.sleep(LOOK_EVERY_S)
        with contextlib.suppress(ServerUnreachable):
            found = dict(api.get_backfill(job, found["number"]))
    return found
