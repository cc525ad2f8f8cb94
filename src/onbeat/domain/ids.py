"""Ids: opaque to users, decodable by us.

A job id is a random 63-bit number. A run id is a pure function of the fire's identity `(job_id, scheduled_at)`:
both numbers in big-endian order, written in Crockford's base 32. So the run id is the same after a retry, a
failover or a restore, the primary key *is* the fence, and looking a run up needs no index of its own.
Manual runs carry a non-whole second in `scheduled_at`, so they can never share an id with a planned fire.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from onbeat.domain.errors import IdInvalid

ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford: no i, l, o, u
_VALUES = {letter: value for value, letter in enumerate(ALPHABET)}
_PAIRS = tuple(first + second for first in ALPHABET for second in ALPHABET)

JOB_ID_BITS = 63
_JOB_LETTERS = 13
_RUN_LETTERS = 2 * _JOB_LETTERS


class RunKey(NamedTuple):
    """The identity of a fire, and so of its run: which job, planned for when (µs UTC)."""

    job_id: int
    scheduled_at: int


def _encode(value: int) -> str:
    """Write up to 65 bits in 13 base-32 letters. Each fire needs this several times.

    Two letters at a time: a table of threes is larger than the processor's cache.
    """
    high, low = value >> 30, value & 0x3FFF_FFFF
    return (
        f"{ALPHABET[high >> 30]}{_PAIRS[high >> 20 & 1_023]}{_PAIRS[high >> 10 & 1_023]}{_PAIRS[high & 1_023]}"
        f"{_PAIRS[low >> 20]}{_PAIRS[low >> 10 & 1_023]}{_PAIRS[low & 1_023]}"
    )


_encode_instant = lru_cache(maxsize=4_096)(_encode)  # the runs of one planned second end alike


def _decode(text: str, prefix: str, letters: int) -> int:
    body = text[len(prefix) :]
    if not text.startswith(prefix) or len(body) != letters:
        raise IdInvalid(f"{text[:60]!r} is not an id of the form {prefix}… with {letters} letters")
    value = 0
    for letter in body:
        digit = _VALUES.get(letter)
        if digit is None:
            raise IdInvalid(f"{text[:60]!r} contains {letter!r}, which no onbeat id contains")
        value = value << 5 | digit
    return value


def format_job_id(job_id: int) -> str:
    """`job_` and 13 letters."""
    return "job_" + _encode(job_id)


def parse_job_id(text: str) -> int:
    """The number behind a `job_…` id. Raises IdInvalid."""
    value = _decode(text, "job_", _JOB_LETTERS)
    if value >> JOB_ID_BITS:
        raise IdInvalid(f"{text!r} is not a job id")
    return value


def format_run_id(key: RunKey) -> str:
    """`run_` and 26 letters: 64 bits of job id, 64 bits of `scheduled_at` in µs."""
    job_id, scheduled_at = key
    # 130 bits, cut in the middle, which is one bit above the instant.
    return "run_" + _encode(job_id >> 1) + _encode_instant((job_id & 1) << 64 | scheduled_at)


def parse_run_id(text: str) -> RunKey:
    """The fire's identity behind a `run_…` id. Raises IdInvalid."""
    value = _decode(text, "run_", _RUN_LETTERS)
    job_id, scheduled_at = value >> 64, value & (1 << 64) - 1
    if job_id >> JOB_ID_BITS or scheduled_at >> 63:
        raise IdInvalid(f"{text!r} is not a run id")
    return RunKey(job_id, scheduled_at)
