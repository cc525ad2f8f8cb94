"""How runs and their attempts are shown."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from onbeat.cli.known_jobs import KnownJob, KnownJobs
from onbeat.cli.moments import in_zone
from onbeat.cli.terminal import print_fields, print_table

Json = Mapping[str, Any]


def print_runs(runs: Iterable[Json], *, jobs: KnownJobs) -> None:
    """Runs as a table, each planned instant in its job's zone."""
    print_table(
        ("id", "job", "state", "planned", "planned UTC", "lag", "took", "answer"),
        [run_cells(run, job=jobs.of(run["job_id"])) for run in runs],
        empty="No runs.",
    )


def run_cells(run: Json, *, job: KnownJob) -> tuple[str, ...]:
    """The cells of one run."""
    return (
        run["id"],
        job.label,
        run["state"],
        in_zone(run["scheduled_at"], job.timezone),
        run["scheduled_at"],
        _length(run.get("lag_ms")),
        _length(run.get("duration_ms")),
        _answer(run),
    )


def print_run(run: Json, *, timezone: str) -> None:
    """One run, every field that has a value."""
    shown: list[tuple[str, object]] = []
    for name, value in run.items():
        if name.endswith("_at") and isinstance(value, str) and timezone != "UTC":
            value = f"{value}  ({in_zone(value, timezone)})"
        shown.append((name, json.dumps(value, ensure_ascii=False) if isinstance(value, dict | list) else value))
    print_fields(shown)


def print_attempts(page: Json, *, timezone: str) -> None:
    """The finished attempts of a run."""
    print_table(
        ("attempt", "outcome", "status", "started", "took", "worker", "error"),
        [
            (
                attempt["attempt"],
                attempt["outcome"],
                attempt.get("status") or "",
                in_zone(attempt["started_at"], timezone),
                _length(attempt.get("duration_ms")),
                attempt.get("worker") or "",
                attempt.get("error") or "",
            )
            for attempt in page["items"]
        ],
        empty="No attempt has failed or been recorded.",
    )


def _length(milliseconds: float | None) -> str:
    return "" if milliseconds is None else f"{milliseconds:,.1f} ms"


def _answer(run: Json) -> str:
    if run.get("count", 1) > 1:
        return f"{run['count']} instants until {run.get('until')}"
    told = (run.get("status"), run.get("reason"), run.get("error"), "late" if run.get("late") else None)
    return "  ".join(str(part) for part in told if part)
