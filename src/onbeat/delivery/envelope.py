"""The body of a webhook whose job brings none of its own: a JSON envelope around the payload.

It repeats job, planned instant, attempt and trigger because of the headers only id and timestamp are signed. The
payload's bytes are embedded as they were saved: never parsed and written again, so numbers and key order survive.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Final

import msgspec

from onbeat.domain.errors import DefinitionError
from onbeat.domain.states import Trigger

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_JSON = msgspec.json.Encoder()
_ANY_JSON = msgspec.json.Decoder()


@lru_cache(maxsize=4_096)  # the runs of one planned second ask for the same text
def format_instant(instant_us: int) -> str:
    """RFC 3339 in UTC; microseconds only where the instant is not a whole second."""
    return (_EPOCH + timedelta(microseconds=instant_us)).isoformat().replace("+00:00", "Z")


def check_json(payload: str, *, field: str) -> bytes:
    """The payload's bytes. Raises DefinitionError(`payload_invalid`) for text that is not JSON."""
    try:
        _ANY_JSON.decode(payload)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        raise DefinitionError("payload_invalid", "the payload is not JSON", field=field) from None
    return payload.encode("utf-8")


def describe_job(job_id: str, *, job_key: str | None, job_name: str) -> bytes:
    """The part of the envelope that says whose run it is."""
    return _JSON.encode({"id": job_id, "key": job_key, "name": job_name})


def describe_callback(url: str, token: str) -> bytes:
    """Where the handler reports, as a member of the envelope."""
    return b',"callback":%b' % _JSON.encode({"url": url, "token": token})


def wrap(
    payload: bytes,
    *,
    run_id: str,
    job: bytes,
    scheduled_at: str,
    attempt: int,
    trigger: Trigger,
    callback: bytes = b"",
) -> bytes:
    """The envelope's bytes. `payload` and `job` are JSON already, `callback` is a whole member or nothing."""
    return b'{"run_id":"%b","job":%b,"scheduled_at":"%b","attempt":%d,"trigger":"%b"%b,"payload":%b}' % (
        run_id.encode("ascii"),
        job,
        scheduled_at.encode("ascii"),
        attempt,
        trigger.encode("ascii"),
        callback,
        payload,
    )
