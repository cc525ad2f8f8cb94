"""`onbeat runs …`: what became of fires."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from onbeat.cli import bulk_runs
from onbeat.cli.connection import DEFAULT_SERVER, CursorOption, JsonOption, LimitOption, ServerOption, connect
from onbeat.cli.known_jobs import KnownJobs
from onbeat.cli.run_views import print_attempts, print_run, print_runs
from onbeat.cli.terminal import print_fields, print_json

if TYPE_CHECKING:
    from onbeat.client.api import Api

app = typer.Typer(help="Look at what became of fires; cancel or retry one.", no_args_is_help=True)
app.add_typer(bulk_runs.app, name="bulk")

RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="The run's id (run_…).")]


@app.command("list")
def list_runs(
    job: Annotated[str | None, typer.Option("--job", help="Only of this job: id or key.")] = None,
    state: Annotated[list[str] | None, typer.Option("--state", help="Only in this state; may be repeated.")] = None,
    late: Annotated[bool | None, typer.Option("--late/--not-late", help="Only those that started after grace.")] = None,
    response: Annotated[
        bool, typer.Option("--response", help="Show what the last attempt of each was answered.")
    ] = False,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on showing runs as they change.")] = False,
    limit: LimitOption = 50,
    cursor: CursorOption = None,
    server: ServerOption = DEFAULT_SERVER,
    as_json: JsonOption = False,
) -> None:
    """Runs, newest planned instant first. With --follow: one line per change (with --json: one JSON per line)."""
    with connect(server) as api:
        jobs = KnownJobs(api)
        where: dict[str, Any] = {"state": state, "late": late, "limit": limit}
        if job is not None:
            where["job"] = jobs.remember(api.get_job(job))
        if follow:
            if response:
                raise typer.BadParameter("answers are not shown while following", param_hint="--response")
            from onbeat.cli.run_following import follow_runs

            follow_runs(api, where, jobs=jobs, as_json=as_json)
        page = api.find_runs(**where, response=response or None, cursor=cursor)
        if as_json:
            print_json(page)
            return
        print_runs(page["items"], jobs=jobs, with_response=response)
    if page.get("next_cursor"):
        print_fields([("more", f"--cursor {page['next_cursor']}")])


@app.command("get")
def get_run(run: RunArgument, server: ServerOption = DEFAULT_SERVER, as_json: JsonOption = False) -> None:
    """One run."""
    with connect(server) as api:
        _show(api, api.get_run(run), as_json)


@app.command("attempts")
def list_attempts(run: RunArgument, server: ServerOption = DEFAULT_SERVER, as_json: JsonOption = False) -> None:
    """The finished attempts of a run, with what the receiver answered."""
    with connect(server) as api:
        page = api.attempts(run)
        if as_json:
            print_json(page)
        else:
            print_attempts(page, timezone=KnownJobs(api).of(api.get_run(run)["job_id"]).timezone)


@app.command("cancel")
def cancel_run(run: RunArgument, server: ServerOption = DEFAULT_SERVER, as_json: JsonOption = False) -> None:
    """End a run that waits; ask one that runs to stop."""
    with connect(server) as api:
        _show(api, api.cancel_run(run), as_json)


@app.command("retry")
def retry_run(run: RunArgument, server: ServerOption = DEFAULT_SERVER, as_json: JsonOption = False) -> None:
    """Bring a run that ended without success back, under its own id."""
    with connect(server) as api:
        _show(api, api.retry_run(run), as_json)


def _show(api: Api, run: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(run)
    else:
        print_run(run, timezone=KnownJobs(api).of(run["job_id"]).timezone)
