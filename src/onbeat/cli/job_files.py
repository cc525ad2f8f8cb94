"""Many jobs from a file: one JSON object per line, sent in batches, with a progress bar."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onbeat.cli.terminal import clean, console, print_json
from onbeat.domain.errors import RequestError

if TYPE_CHECKING:
    from onbeat.client.api import Api

BATCH = 1_000
"""Jobs per call: what the API takes at once."""


def read_jobs(path: Path) -> list[dict[str, Any]]:
    """All jobs, checked to be JSON objects before the first is sent. Raises RequestError naming the line."""
    jobs: list[dict[str, Any]] = []
    for number, line in enumerate(_text(path).splitlines(), start=1):
        if not line.strip():
            continue
        try:
            job = json.loads(line)
        except ValueError as error:
            raise RequestError(f"line {number} is not valid JSON: {error}", field=str(path)) from None
        if not isinstance(job, dict):
            raise RequestError(f"line {number} is not a JSON object", field=str(path))
        jobs.append(job)
    if not jobs:
        raise RequestError("there is no job in it", field=str(path), remedy="write one job as JSON per line")
    return jobs


def create_many(api: Api, jobs: Sequence[dict[str, Any]], *, as_json: bool) -> int:
    """Send them; show those that were refused. Answer: how many were.

    In JSON, one answer per job, in order, one per line.
    """
    from rich.progress import Progress

    created = refused = 0
    with Progress(console=console(to_error=True), transient=True) as progress:
        bar = progress.add_task("creating jobs", total=len(jobs))
        for start in range(0, len(jobs), BATCH):
            batch = jobs[start : start + BATCH]
            for place, answer in enumerate(api.create_jobs(batch), start=created + refused + 1):
                is_refused = "error" in answer
                refused += is_refused
                created += not is_refused
                if as_json:
                    print_json(answer, indent=None)
                elif is_refused:
                    problem = answer["error"]
                    print(clean(f"job {place}: {problem.get('detail')} ({problem.get('code')})"), file=sys.stderr)
            progress.advance(bar, len(batch))
    if not as_json:
        print(f"{created} created, {refused} refused")
    return refused


def _text(path: Path) -> str:
    if str(path) == "-":
        return sys.stdin.read()
    try:
        return path.read_text()
    except OSError as error:
        raise RequestError(f"cannot read it: {error.strerror}", field=str(path)) from None
    except UnicodeDecodeError:
        raise RequestError("it is not UTF-8 text", field=str(path)) from None
