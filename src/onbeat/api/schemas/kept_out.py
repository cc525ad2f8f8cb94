"""Instants that calendars keep out, as they are told."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pydantic import Field

from onbeat.api.schemas.base import View, moment
from onbeat.domain.kept_out import KeptOut


class KeptOutView(View):
    """Planned instants of one local day that a calendar keeps out."""

    at: str
    until: str = Field(description="The last of them; equal to `at` where there is one")
    count: int
    calendar: str
    moved_to: str | None = Field(description="Where the first of them goes; null: they fall away")


def view_kept_out(told: Iterable[KeptOut]) -> list[dict[str, Any]]:
    """KeptOutViews, ready to be written as JSON."""
    return [
        {
            "at": moment(found.at),
            "until": moment(found.until),
            "count": found.count,
            "calendar": found.calendar,
            "moved_to": moment(found.moved_to),
        }
        for found in told
    ]
