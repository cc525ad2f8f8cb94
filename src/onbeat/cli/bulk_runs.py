"""`onbeat runs bulk …`: one action on every run that a filter finds."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from onbeat.cli.bulk import AllOption, DryRunOption, run_bulk
from onbeat.cli.connection import DEFAULT_SERVER, JsonOption, ServerOption, connect

app = typer.Typer(help="One action on every run that a filter finds.", no_args_is_help=True)


JobOption = Annotated[str | None, typer.Option("--job", help="Only of this job: id or key.")]
LateOption = Annotated[bool | None, typer.Option("--late/--not-late", help="Only those that started after grace.")]
FromOption = Annotated[str | None, typer.Option("--from", metavar="RFC3339", help="Only planned then or later.")]
ToOption = Annotated[str | None, typer.Option("--to", metavar="RFC3339", help="Only planned before that.")]


@app.command("cancel")
def cancel_runs(
    job: JobOption = None,
    state: Annotated[
        list[str] | None, typer.Option("--state", help="pending or running; both when left out. May be repeated.")
    ] = None,
    late: LateOption = None,
    scheduled_from: FromOption = None,
    scheduled_to: ToOption = None,
    everything: AllOption = False,
    dry_run: DryRunOption = False,
    server: ServerOption = DEFAULT_SERVER,
    as_json: JsonOption = False,
) -> None:
    """End those that wait; ask those that run to stop."""
    chosen = {"job": job, "state": state or None, "late": late, "from": scheduled_from, "to": scheduled_to}
    request = _request("cancel", chosen, everything=everything)
    with connect(server) as api:
        run_bulk(api.bulk_runs, request, dry_run=dry_run, as_json=as_json)


@app.command("retry")
def retry_runs(
    job: JobOption = None,
    state: Annotated[
        list[str] | None,
        typer.Option(
            "--state",
            help="failed, timed_out, cancelled or unknown; the first two when left out. May be repeated.",
        ),
    ] = None,
    late: LateOption = None,
    scheduled_from: FromOption = None,
    scheduled_to: ToOption = None,
    everything: AllOption = False,
    dry_run: DryRunOption = False,
    server: ServerOption = DEFAULT_SERVER,
    as_json: JsonOption = False,
) -> None:
    """Bring back those that ended without success, each under its own id: oldest first, at recovery_per_s."""
    chosen = {"job": job, "state": state or None, "late": late, "from": scheduled_from, "to": scheduled_to}
    request = _request("retry", chosen, everything=everything)
    with connect(server) as api:
        run_bulk(api.bulk_runs, request, dry_run=dry_run, as_json=as_json)


def _request(action: str, chosen: dict[str, Any], *, everything: bool) -> dict[str, Any]:
    named = {name: value for name, value in chosen.items() if value is not None}
    return {"filter": named, "all": everything, "action": action}
