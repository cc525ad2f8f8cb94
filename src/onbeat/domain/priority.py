"""In which order runs that are ready are claimed. Design: priorities 0..9 with ageing.

A run's place in the line is `ready_at - priority * AGEING_US`: each step of priority is worth a minute of waiting, so
what waits grows older and is never passed for ever.
"""

from __future__ import annotations

from typing import Final

from onbeat.domain.model import SECOND_US
from onbeat.domain.overlap import RECOVERY
from onbeat.domain.states import Trigger

AGEING_US: Final = 60 * SECOND_US

RECOVERY_STEPS: Final = 60
"""Runs that make up for the past stand behind live ones of the same priority until they have waited an hour."""


STANDINGS: Final = tuple(sorted((*range(10), *(priority - RECOVERY_STEPS for priority in range(10))), reverse=True))
"""All there are, the highest first: each is a line of its own."""


def standing(priority: int, trigger: Trigger) -> int:
    """The priority with which a run of a job stands in line."""
    return standing_behind(priority) if trigger in RECOVERY else priority


def standing_behind(priority: int) -> int:
    """The priority of a run that makes up for the past, whatever made it first."""
    return priority - RECOVERY_STEPS


def place(*, ready_at: int, standing: int) -> int:
    """Where it stands: lower places are claimed first."""
    return ready_at - standing * AGEING_US
