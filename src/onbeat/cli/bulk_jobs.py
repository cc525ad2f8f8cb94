"""`onbeat jobs bulk …`: one action on every job that a filter finds."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from onbeat.cli.bulk import AllOption, DryRunOption, run_bulk
from onbeat.cli.connection import DEFAULT_SERVER, JsonOption, ServerOption, connect
from onbeat.cli.pauses import ReplayOption, pause_request, resume_request

app = typer.Typer(help="One action on every job that a filter finds.", no_args_is_help=True)

StateOption = Annotated[
    str | None, typer.Option("--state", help="Only in this state: active, paused, completed or error.")
]
TagOption = Annotated[str | None, typer.Option("--tag", help="Only with this tag.")]
TextOption = Annotated[str | None, typer.Option("--text", help="Only with this in the name or key.")]
NewTagArgument = Annotated[str, typer.Argument(metavar="TAG", help="The tag.")]


@app.command("pause")
def pause_jobs(
    state: StateOption = None,
    tag: TagOption = None,
    text: TextOption = None,
    everything: AllOption = False,
    note: Annotated[str | None, typer.Option(help="Why, for whoever finds it paused.")] = None,
    until: Annotated[str | None, typer.Option(metavar="RFC3339", help="When it ends by itself.")] = None,
    cancel: Annotated[bool, typer.Option("--cancel", help="Also cancel what waits and stop what runs.")] = False,
    dry_run: DryRunOption = False,
    server: ServerOption = DEFAULT_SERVER,
    as_json: JsonOption = False,
) -> None:
    """Pause each of them by itself; new jobs are not covered. For a pause that covers new ones: `onbeat pause`."""
    arguments = pause_request(note=note, until=until, cancel=cancel)
    _run("pause", arguments, _filter(state, tag, text, everything), server, dry_run=dry_run, as_json=as_json)


@app.command("resume")
def resume_jobs(
    state: StateOption = None,
    tag: TagOption = None,
    text: TextOption = None,
    everything: AllOption = False,
    replay: ReplayOption = "none",
    dry_run: DryRunOption = False,
    server: ServerOption = DEFAULT_SERVER,
    as_json: JsonOption = False,
) -> None:
    """Let each of them go on at its next planned instant."""
    where = _filter(state, tag, text, everything)
    _run("resume", resume_request(replay), where, server, dry_run=dry_run, as_json=as_json)


@app.command("delete")
def delete_jobs(
    state: StateOption = None,
    tag: TagOption = None,
    text: TextOption = None,
    everything: AllOption = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="Also stop what runs.")] = False,
    dry_run: DryRunOption = False,
    server: ServerOption = DEFAULT_SERVER,
    as_json: JsonOption = False,
) -> None:
    """Delete them. What waits is cancelled, what runs may finish, the history stays."""
    arguments = {"running": "cancel" if cancel else "finish"}
    _run("delete", arguments, _filter(state, tag, text, everything), server, dry_run=dry_run, as_json=as_json)


@app.command("trigger")
def trigger_jobs(
    state: StateOption = None,
    tag: TagOption = None,
    text: TextOption = None,
    everything: AllOption = False,
    payload: Annotated[str | None, typer.Option(metavar="JSON", help="In place of each job's own payload.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Run beside everything, past the overlap rule.")] = False,
    dry_run: DryRunOption = False,
    server: ServerOption = DEFAULT_SERVER,
    as_json: JsonOption = False,
) -> None:
    """Run each of them now, beside its schedule."""
    from onbeat.cli.job_bodies import parse_json

    arguments: dict[str, Any] = {"force": force}
    if payload is not None:
        arguments["payload"] = parse_json(payload, field="--payload")
    _run("trigger", arguments, _filter(state, tag, text, everything), server, dry_run=dry_run, as_json=as_json)


@app.command("add-tag")
def add_tag(
    new_tag: NewTagArgument,
    state: StateOption = None,
    tag: TagOption = None,
    text: TextOption = None,
    everything: AllOption = False,
    dry_run: DryRunOption = False,
    server: ServerOption = DEFAULT_SERVER,
    as_json: JsonOption = False,
) -> None:
    """Give them a tag."""
    where = _filter(state, tag, text, everything)
    _run("add_tag", {"tag": new_tag}, where, server, dry_run=dry_run, as_json=as_json)


@app.command("remove-tag")
def remove_tag(
    old_tag: NewTagArgument,
    state: StateOption = None,
    tag: TagOption = None,
    text: TextOption = None,
    everything: AllOption = False,
    dry_run: DryRunOption = False,
    server: ServerOption = DEFAULT_SERVER,
    as_json: JsonOption = False,
) -> None:
    """Take a tag away from them."""
    where = _filter(state, tag, text, everything)
    _run("remove_tag", {"tag": old_tag}, where, server, dry_run=dry_run, as_json=as_json)


def _filter(state: str | None, tag: str | None, text: str | None, everything: bool) -> dict[str, Any]:
    chosen = {"state": state, "tag": tag, "text": text}
    return {"filter": {name: value for name, value in chosen.items() if value is not None}, "all": everything}


def _run(
    action: str, arguments: dict[str, Any], where: dict[str, Any], server: str, *, dry_run: bool, as_json: bool
) -> None:
    with connect(server) as api:
        request = where | {"action": action, "arguments": arguments}
        run_bulk(api.bulk_jobs, request, dry_run=dry_run, as_json=as_json)
