"""Rows of the database as the contract's values, and back. Column orders are those of `queries/*.sql`.

Conversions are look-ups rather than enum calls: they run for every fire.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import msgspec

from onbeat.domain.ids import RunKey
from onbeat.domain.outcome import Response
from onbeat.domain.states import JobState, RunState, Trigger
from onbeat.store.values import AttemptView, LaneHold, LiveRun, RunView, StoredJob

Row = tuple[Any, ...]

RUN_STATES: Final = {state.value: state for state in RunState}
JOB_STATES: Final = {state.value: state for state in JobState}
TRIGGERS: Final = {trigger.value: trigger for trigger in Trigger}
LARGEST: Final = 2**63 - 1

_decode_rows = msgspec.json.Decoder(list[tuple[Any, ...]]).decode
_decode_strings = msgspec.json.Decoder(tuple[str, ...]).decode


def encode_strings(strings: tuple[str, ...]) -> str:
    """JSON text of tags or scopes."""
    return msgspec.json.encode(strings).decode() if strings else "[]"


def encode_rows(rows: Sequence[object]) -> str:
    """Rows of numbers and text, with blobs in hex, for a statement that takes any number of them: JSON."""
    return msgspec.json.encode(rows).decode()


def decode_rows(text: bytes) -> list[Row]:
    """What a statement answers that puts all its rows into one, which it does in one call."""
    return _decode_rows(text)


def decode_strings(text: str) -> tuple[str, ...]:
    """Tags or scopes from JSON text."""
    return () if text == "[]" else _decode_strings(text)


def stored_job(row: Row) -> StoredJob:
    """From the fifteen columns that every query for jobs begins with."""
    return StoredJob(
        row[0], row[1], row[2], row[3], decode_strings(row[4]), row[5], JOB_STATES[row[6]], row[7], row[8], row[9],
        row[10], row[11], row[12], row[13], row[14],
    )  # fmt: skip


def lane_hold(row: Row) -> LaneHold:
    """From `lane_holds`."""
    return LaneHold(row[0], row[1], RUN_STATES[row[2]], TRIGGERS[row[3]], row[4], row[5], bool(row[6]))


def live_run(row: Row) -> LiveRun:
    """From the columns of `get_live`, `lost_leases` and `overdue_retries`; see also `endings.LiveRow`."""
    return LiveRun(
        RunKey(row[0], row[1]), RUN_STATES[row[2]], TRIGGERS[row[3]], row[4], row[5], row[6], row[7], row[8], row[9],
        row[10], row[11], row[12], row[13], row[14], bool(row[15]), row[16], row[17], row[24], row[25], None, row[26],
    )  # fmt: skip


def run_view(row: Row) -> RunView:
    """From the queries for views, live or ended."""
    return RunView(
        RunKey(row[0], row[1]), RUN_STATES[row[2]], TRIGGERS[row[3]], row[4], row[5], row[6], row[7], row[8], row[9],
        row[10], row[11], row[12], row[13], row[14], row[15], bool(row[16]), row[17], row[18], row[19], row[20],
        row[21], row[22], bool(row[23]), row[24], row[25], row[26], row[27], row[28], row[29], row[30],
    )  # fmt: skip


def attempt_view(row: Row) -> AttemptView:
    """From `failed_attempts` and `succeeded_attempt`."""
    return AttemptView(*row)


def encode_response(response: Response | None) -> bytes | None:
    """JSON: headers, body in base64, truncated. What a receiver sent is never a reason to lose a finish."""
    if response is None:
        return None
    try:
        return msgspec.json.encode(response)
    except UnicodeEncodeError:
        headers = tuple((_storable(name), _storable(value)) for name, value in response.headers)
        return msgspec.json.encode(Response(headers, response.body, response.truncated))


def storable_text(text: str | None) -> str | None:
    """Text without lone surrogates, which no database takes, and without NUL, which PostgreSQL does not take."""
    return text if text is None or (text.isascii() and "\0" not in text) else _storable(text)


def is_storable(*texts: str | None) -> bool:
    """Can a row hold each of these? What none can hold need not be looked for."""
    return all(storable_text(text) == text for text in texts)


def _storable(text: str) -> str:
    return text.encode("utf-8", "replace").decode().replace("\0", "?")
