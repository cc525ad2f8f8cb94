"""The right of a handler to report on one attempt: a token that is made from the lease's and never leads back to it."""

from __future__ import annotations

import hashlib
import hmac

from onbeat.domain.errors import DefinitionError
from onbeat.domain.model import Definition, WebhookTarget


def callback_token(lease_token: bytes) -> bytes:
    """16 bytes for the handler of the attempt that is held under `lease_token`.

    Made, not drawn: it travels with the request, before anybody knows whether the handler accepts, and the scheduler
    can still tell it from the lease alone. One way: whoever has it can neither report nor extend as a worker.
    """
    return hashlib.blake2b(lease_token, digest_size=16, person=b"onbeat-callback").digest()


def tokens_match(expected: bytes | None, given: bytes) -> bool:
    """In constant time: how long this takes must not tell how much of a guess was right."""
    return expected is not None and hmac.compare_digest(expected, given)


def check_completion(definition: Definition, *, can_be_called: bool) -> None:
    """Raises DefinitionError(`completion_invalid`). `can_be_called`: this server has an address for handlers."""
    if definition.completion == "response":
        if definition.callback_heartbeat_s is not None:
            raise _invalid(
                "callback_heartbeat_s",
                "only a handler that reports the end of its work can report before it",
                remedy='set "completion": "callback", or leave it out',
            )
        return
    if not isinstance(definition.target, WebhookTarget):
        raise _invalid(
            "completion",
            "a worker of a queue reports by its lease and needs no callback",
            remedy='leave "completion" out',
        )
    if not can_be_called:
        raise _invalid(
            "completion",
            "this server does not know under which address handlers reach it",
            remedy="set public_url (ONBEAT_PUBLIC_URL) and restart it",
        )


def _invalid(field: str, detail: str, *, remedy: str) -> DefinitionError:
    return DefinitionError("completion_invalid", detail, field=field, remedy=remedy)
