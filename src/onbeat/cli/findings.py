"""What a check of `onbeat doctor` says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Verdict = Literal["ok", "warn", "bad"]

SKEW_WARN_S: Final = 2.0
SKEW_BAD_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Finding:
    """What one check found."""

    name: str
    verdict: Verdict
    found: str
    advice: str | None = None


def judge_skew(name: str, skew_s: float, *, other: str) -> Finding:
    """Do two clocks agree?"""
    found = f"{skew_s:.1f} s from {other}"
    if skew_s <= SKEW_WARN_S:
        return Finding(name, "ok", found)
    verdict: Verdict = "bad" if skew_s > SKEW_BAD_S else "warn"
    return Finding(name, verdict, found, "let a time service (chrony, systemd-timesyncd) set both clocks")
