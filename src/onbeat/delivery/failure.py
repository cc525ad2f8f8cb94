"""Why there is no connection."""

from __future__ import annotations

from onbeat.domain.outcome import OutcomeKind


class DialFailed(Exception):
    """No connection. Nothing was sent. `reason` is fixed words: it never names an address of ours."""

    def __init__(self, kind: OutcomeKind, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason
