"""How runs and their attempts are shown."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping
from typing import Any

from onbeat.cli.known_jobs import KnownJob, KnownJobs
from onbeat.cli.moments import in_zone
from onbeat.cli.terminal import print_fields, print_table

Json = Mapping[str, Any]

RESPONSE_SHOWN = 200
"""Characters of a body in a table; `--json` has more."""


def print_runs(runs: Iterable[Json], *, jobs: KnownJobs, with_response: bool = False) -> None:
    """Runs as a table, each planned instant in its job's zone."""
    columns = ("id", "job", "state", "planned", "planned UTC", "lag", "took", "answer")
    cells = ((run, run_cells(run, job=jobs.of(run["job_id"]))) for run in runs)
    if with_response:
        rows = [(*of_run, _response(run.get("response"))) for run, of_run in cells]
        print_table((*columns, "response"), rows, empty="No runs.")
    else:
        print_table(columns, [of_run for _, of_run in cells], empty="No runs.")


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


def _response(response: Json | None) -> str:
    if response is None:
        return ""
    text = base64.b64decode(response["body"]).decode("utf-8", "replace")
    return text if len(text) <= RESPONSE_SHOWN else f"{text[:RESPONSE_SHOWN]}…"


def _length(milliseconds: float | None) -> str:
    return "" if milliseconds is None else f"{milliseconds:,.1f} ms"


def _answer(run: Json) -> str:
    if run.get("count", 1) > 1:
        return f"{run['count']} instants until {run.get('until')}"
    told = (run.get("status"), run.get("reason"), run.get("error"), "late" if run.get("late") else None)
    return "  ".join(str(part) for part in told if part)
