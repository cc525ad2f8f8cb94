"""Many jobs from a file: one JSON object per line, sent in batches, with a progress bar."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from onbeat.cli.terminal import clean, console, print_json
from onbeat.cli.text_files import read_text
from onbeat.domain.errors import RequestError
from onbeat.domain.strict_json import DEEPEST, JsonRefused, parse_strictly

if TYPE_CHECKING:
    from onbeat.client.api import Api

BATCH = 1_000
"""Jobs per call at most: few enough for the bar to move."""

LARGEST_BATCH = 8_388_608
"""Bytes of jobs per call at most: half of what the API takes at once."""


def read_jobs(path: Path) -> list[dict[str, Any]]:
    """All jobs, checked to be JSON objects before the first is sent. Raises RequestError naming the line."""
    jobs: list[dict[str, Any]] = []
    # By line feeds alone: other characters that end a line elsewhere may stand in a JSON text.
    for number, line in enumerate(read_text(path).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            job = parse_strictly(line.encode(), deepest=DEEPEST - 2)  # it travels in a list in an object
        except JsonRefused as refused:
            raise RequestError(f"line {number}: {refused.detail}", field=str(path), remedy=refused.remedy) from None
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
        for batch in batches(jobs):
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


def batches(jobs: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """All of them in order, as many in each call as `BATCH` and `LARGEST_BATCH` allow."""
    batch: list[dict[str, Any]] = []
    size = 0
    for job in jobs:
        length = len(msgspec.json.encode(job))
        if batch and (len(batch) == BATCH or size + length > LARGEST_BATCH):
            yield batch
            batch, size = [], 0
        batch.append(job)
        size += length
    yield batch
