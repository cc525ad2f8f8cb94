"""`onbeat db backup` and `onbeat db restore`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated

import typer

from onbeat.cli.connection import JsonOption
from onbeat.cli.processes import DataOption, settings_from
from onbeat.cli.terminal import print_fields, print_json

if TYPE_CHECKING:
    from onbeat.app.backup import Copy

NOTHING: Mapping[str, object] = MappingProxyType({})
ForceOption = Annotated[bool, typer.Option("--force", help="Replace what is there.")]


def backup(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The backup to write; its key file is PATH.key.")],
    data: DataOption = None,
    force: ForceOption = False,
    without_key: Annotated[
        bool, typer.Option("--without-key", help="Leave the master key out; the backup cannot be restored without it.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Copy the data file and its master key, also while a server runs and fires. The copy is checked."""
    from onbeat.app.backup import back_up

    _show(back_up(settings_from(data=data), path, replaces=force, with_key=not without_key), as_json=as_json)


def restore(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The backup to restore.")],
    data: DataOption = None,
    force: ForceOption = False,
    paused: Annotated[
        bool, typer.Option("--paused", help="Let every job be paused at first; `onbeat resume --all` ends it.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Make the data file out of a backup. Refused while any process works on it."""
    from onbeat.app.backup import restore as restore_backup

    restored = restore_backup(settings_from(data=data), path, replaces=force, paused=paused)
    _show(restored, as_json=as_json, more={"paused": paused})


def _show(copy: Copy, *, as_json: bool, more: Mapping[str, object] = NOTHING) -> None:
    answer = {
        "file": str(copy.path),
        "key": None if copy.key is None else str(copy.key),
        "bytes": copy.content.bytes,
        "schema_version": copy.content.schema_version,
        "jobs": copy.content.jobs,
        "live_runs": copy.content.live_runs,
        "ended_runs": copy.content.ended_runs,
        "attempts": copy.content.attempts,
        **more,
    }
    if as_json:
        print_json(answer)
    else:
        print_fields([(name, value if value is not None else "not written") for name, value in answer.items()])
