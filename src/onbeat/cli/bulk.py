"""What bulk commands share: count first, then call by call with a progress bar, and tell what became of it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Annotated, Any

import typer

from onbeat.cli.terminal import clean, console, print_json

Json = dict[str, Any]

AllOption = Annotated[bool, typer.Option("--all", help="Everything, in place of a filter.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only count, and show the first few ids.")]

PER_CALL = 200
"""Items per call: a fraction of a second, so that the bar moves."""


def run_bulk(call: Callable[[Json], Json], request: Json, *, dry_run: bool, as_json: bool) -> None:
    """Do it to the end. Exits with 1 where some were refused."""
    counted = call(request | {"dry_run": True})
    if dry_run:
        _print_count(counted, as_json)
        return
    total = _act(call, request | {"limit": PER_CALL}, count=counted["count"], as_json=as_json)
    if as_json:
        print_json(total)
    else:
        print(f"{total['done']} done, {total['unchanged']} unchanged, {total['refused']} refused")
    if total["refused"]:
        raise typer.Exit(1)


def _act(call: Callable[[Json], Json], request: Json, *, count: int, as_json: bool) -> Json:
    from rich.progress import Progress

    total: Json = {"done": 0, "unchanged": 0, "refused": 0, "problems": []}
    with Progress(console=console(to_error=True), transient=True) as progress:
        bar = progress.add_task(str(request["action"]), total=count)
        while True:
            answer = call(request)
            for name in total:
                total[name] += answer[name]
            if not as_json:
                for problem in answer["problems"]:
                    error = problem["error"]
                    print(clean(f"{problem['id']}: {error['detail']} ({error['code']})"), file=sys.stderr)
            progress.update(bar, completed=total["done"] + total["unchanged"] + total["refused"])
            if answer["next_cursor"] is None:
                return total
            request = request | {"cursor": answer["next_cursor"]}


def _print_count(counted: Json, as_json: bool) -> None:
    if as_json:
        print_json(counted)
        return
    print(f"{'more than ' if counted['more'] else ''}{counted['count']} found")
    for name in counted["first"]:
        print(clean(name))
    if counted["count"] > len(counted["first"]):
        print("…")
