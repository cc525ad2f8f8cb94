"""Pauses of many jobs at once, at the edge."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from onbeat.api.schemas.base import Body, Tag, View, moment
from onbeat.api.schemas.job_actions import PauseBody
from onbeat.store.values import Pause


class TagScope(Body):
    """Every job with that tag."""

    tag: Tag


Scope = Literal["all"] | TagScope


class PauseManyBody(PauseBody):
    """How to pause, and what: everything in the namespace, or every job with a tag."""

    scope: Scope = Field(examples=["all", {"tag": "billing"}])


class ResumeManyBody(Body):
    """Which pause to end."""

    scope: Scope = Field(examples=["all", {"tag": "billing"}])


class PauseView(View):
    """A pause that holds."""

    scope: Scope
    note: str | None
    running: Literal["finish", "cancel"]
    paused_at: str
    until: str | None


class PauseList(View):
    """Every pause that holds in the namespace."""

    items: list[PauseView]


class PausedManyView(View):
    """The pause, how many jobs it paused now, and when their last side effect can happen."""

    pause: PauseView
    jobs: int
    last_possible_side_effect_at: str


class ResumedManyView(View):
    """How many jobs the pause held."""

    jobs: int


def tag_of(scope: Scope) -> str | None:
    """The tag; None for everything."""
    return scope.tag if isinstance(scope, TagScope) else None


def view_pause(pause: Pause) -> dict[str, Any]:
    """The pause for people."""
    return {
        "scope": {"tag": pause.tag} if pause.tag else "all",
        "note": pause.note,
        "running": "cancel" if pause.cancels else "finish",
        "paused_at": moment(pause.paused_at),
        "until": moment(pause.until),
    }
