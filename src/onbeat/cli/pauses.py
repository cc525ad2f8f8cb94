"""`onbeat pause`, `onbeat resume`, `onbeat pauses`: many jobs at once."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import typer

from onbeat.cli.connection import DEFAULT_SERVER, JsonOption, ServerOption, connect
from onbeat.cli.terminal import print_fields, print_json, print_table
from onbeat.domain.errors import RequestError

TagOption = Annotated[str | None, typer.Option("--tag", help="Every job with this tag.")]
AllOption = Annotated[bool, typer.Option("--all", help="Every job.")]
ReplayOption = Annotated[
    Literal["none", "failed"],
    typer.Option("--replay", help="failed: bring back what failed since it last succeeded. Default: none."),
]


def pause_many(
    tag: TagOption = None,
    everything: AllOption = False,
    note: Annotated[str | None, typer.Option(help="Why, for whoever finds it paused.")] = None,
    until: Annotated[str | None, typer.Option(metavar="RFC3339", help="When it ends by itself.")] = None,
    cancel: Annotated[bool, typer.Option("--cancel", help="Also cancel what waits and stop what runs.")] = False,
    server: ServerOption = DEFAULT_SERVER,
    as_json: JsonOption = False,
) -> None:
    """Pause every job, or those with a tag; new ones too. Tells when the last side effect can happen."""
    request = pause_request(note=note, until=until, cancel=cancel) | {"scope": _scope(tag, everything)}
    with connect(server) as api:
        paused = api.pause_many(request)
    if as_json:
        print_json(paused)
    else:
        print_fields(
            [("paused", paused["jobs"]), ("last possible side effect", paused["last_possible_side_effect_at"])]
        )


def resume_many(
    tag: TagOption = None,
    everything: AllOption = False,
    server: ServerOption = DEFAULT_SERVER,
    as_json: JsonOption = False,
) -> None:
    """End the pause of a tag or of everything. Jobs that were paused one by one stay paused."""
    with connect(server) as api:
        resumed = api.resume_many({"scope": _scope(tag, everything)})
    if as_json:
        print_json(resumed)
    else:
        print_fields([("resumed", resumed["jobs"])])


def list_pauses(server: ServerOption = DEFAULT_SERVER, as_json: JsonOption = False) -> None:
    """The pauses of many jobs that hold."""
    with connect(server) as api:
        page = api.find_pauses()
    if as_json:
        print_json(page)
        return
    print_table(
        ("of", "since", "until", "note"),
        [
            (
                "all" if pause["scope"] == "all" else f"tag {pause['scope']['tag']}",
                pause["paused_at"],
                pause["until"] or "",
                pause["note"] or "",
            )
            for pause in page["items"]
        ],
        empty="No pauses.",
    )


def pause_request(*, note: str | None, until: str | None, cancel: bool) -> dict[str, Any]:
    """How to pause, in the API's words."""
    request: dict[str, Any] = {"running": "cancel" if cancel else "finish", "note": note, "until": until}
    return {name: value for name, value in request.items() if value is not None}


def resume_request(replay: Literal["none", "failed"]) -> dict[str, Any]:
    """How to go on, in the API's words."""
    return {} if replay == "none" else {"replay": replay}


def _scope(tag: str | None, everything: bool) -> str | dict[str, str]:
    if (tag is None) != everything:
        raise RequestError("give one of --tag and --all", field="--tag")
    return "all" if tag is None else {"tag": tag}
