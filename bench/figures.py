"""What a scenario finds: figures, each with what was asked for and with what the machine could do at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True)
class Target:
    """What was asked for."""

    sign: Literal["≥", "≤"]
    value: float

    def is_met_by(self, value: float) -> bool:
        """Whether `value` is good enough."""
        return value >= self.value if self.sign == "≥" else value <= self.value


@dataclass(frozen=True, slots=True)
class Limit:
    """The same measured in the same run with nothing of onbeat in it."""

    of: str
    value: float


@dataclass(frozen=True, slots=True)
class Figure:
    """One number. Its name, and whose it is, are unique within its scenario."""

    name: str
    value: float
    unit: str
    target: Target | None = None
    limit: Limit | None = None
    of: str = ""
    """Whose figure, where the same are told of several."""


@dataclass(frozen=True, slots=True)
class Result:
    """One run of a scenario: what was measured under which conditions."""

    setting: str
    figures: list[Figure]
    notes: list[str] = field(default_factory=list)
    """What has to be known to read them, a sentence each."""


def at_least(value: float) -> Target:
    """A target for what should be large."""
    return Target("≥", value)


def at_most(value: float) -> Target:
    """A target for what should be small."""
    return Target("≤", value)


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value that `share` of all are not above, by nearest rank. `ordered`: ascending and not empty."""
    if not ordered:
        raise ValueError("nothing was measured")
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def latencies(
    name: str,
    values_ms: Sequence[float],
    *,
    shares: Sequence[float] = (0.5, 0.99, 1.0),
    targets: dict[float, Target] | None = None,
    limits: dict[float, Limit] | None = None,
) -> list[Figure]:
    """A figure for each of `shares`; 1.0 is the longest."""
    ordered = sorted(values_ms)
    return [
        Figure(
            f"{name}, {'longest' if share == 1.0 else f'p{share * 100:g}'}",
            percentile(ordered, share),
            "ms",
            (targets or {}).get(share),
            (limits or {}).get(share),
        )
        for share in shares
    ]
