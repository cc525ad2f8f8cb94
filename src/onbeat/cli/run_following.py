"""`runs list --follow`: show runs as they appear and change, until interrupted."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from typing import Any, NoReturn

from onbeat.cli.known_jobs import KnownJobs
from onbeat.cli.run_views import run_cells
from onbeat.cli.terminal import STYLES, clean, console, print_json
from onbeat.client.api import Api, ServerUnreachable

LOOK_EVERY_S = 0.5
LARGEST_PAGE = 1_000
"""Runs read in one look: a burst of up to this many between two looks is shown whole."""

REMEMBERED = 20_000

Json = Mapping[str, Any]


def follow_runs(api: Api, where: Mapping[str, Any], *, jobs: KnownJobs, as_json: bool) -> NoReturn:
    """Print every run when it appears and whenever its state or attempt changes. A server that restarts is waited for.

    The first look shows what `limit` allows; later ones whatever is not older than that.
    """
    screen = console()
    seen: dict[str, tuple[Any, ...]] = {}
    runs: list[Json] = api.find_runs(**where)["items"]
    oldest = runs[-1]["scheduled_at"] if runs else ""
    where = {**where, "limit": LARGEST_PAGE}
    while True:
        for run in reversed([run for run in runs if run["scheduled_at"] >= oldest and _note(seen, run)]):
            if as_json:
                print_json(run, indent=None)
            else:
                screen.print(_line(run_cells(run, job=jobs.of(run["job_id"]))), soft_wrap=True)
        time.sleep(LOOK_EVERY_S)
        with contextlib.suppress(ServerUnreachable):
            runs = api.find_runs(**where)["items"]


def _note(seen: dict[str, tuple[Any, ...]], run: Json) -> bool:
    """True where this run is new or has changed since it was last shown."""
    now = (run["state"], run.get("attempt"), run.get("until"))
    if seen.get(run["id"]) == now:
        return False
    seen[run["id"]] = now
    while len(seen) > REMEMBERED:
        del seen[next(iter(seen))]
    return True


def _line(cells: tuple[str, ...]) -> Any:
    from rich.text import Text

    line = Text()
    for cell in cells:
        if cell:
            line.append(clean(cell), style=STYLES.get(cell, ""))
            line.append("  ")
    return line
