"""The right to report, and which jobs may give it."""

from __future__ import annotations

from typing import Any

import pytest

from onbeat.domain.callback import callback_token, check_completion, tokens_match
from onbeat.domain.errors import DefinitionError
from onbeat.domain.model import Definition, EverySchedule, QueueTarget, WebhookTarget

LEASE = bytes(range(16))


def test_the_token_is_the_same_for_a_lease_and_another_for_every_other() -> None:
    token = callback_token(LEASE)
    assert len(token) == 16
    assert callback_token(LEASE) == token
    assert len({LEASE, token, callback_token(token), callback_token(bytes(16))}) == 4


def test_nothing_matches_no_token() -> None:
    assert tokens_match(LEASE, LEASE)
    assert not tokens_match(LEASE, LEASE[:-1])
    assert not tokens_match(None, b"")


WEBHOOK, QUEUE = WebhookTarget(url="https://example.com/"), QueueTarget(queue="q")


@pytest.mark.parametrize(
    ("target", "completion", "silence_s", "can_be_called", "field"),
    [
        (WEBHOOK, "response", None, False, None),
        (QUEUE, "response", None, False, None),
        (WEBHOOK, "callback", None, True, None),
        (WEBHOOK, "callback", 60, True, None),
        (WEBHOOK, "callback", None, False, "completion"),
        (QUEUE, "callback", None, True, "completion"),
        (WEBHOOK, "response", 60, True, "callback_heartbeat_s"),
    ],
)
def test_which_jobs_may_complete_by_callback(
    target: Any, completion: Any, silence_s: int | None, can_be_called: bool, field: str | None
) -> None:
    job = Definition(
        schedules=(EverySchedule(every_s=60, anchor_at=0),),
        target=target,
        completion=completion,
        callback_heartbeat_s=silence_s,
    )
    if field is None:
        check_completion(job, can_be_called=can_be_called)
        return
    with pytest.raises(DefinitionError) as refused:
        check_completion(job, can_be_called=can_be_called)
    assert (refused.value.reason_code, refused.value.field) == ("completion_invalid", field)
