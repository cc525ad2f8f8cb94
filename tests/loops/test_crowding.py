"""Which hosts count as slow, and who may begin beyond a worker's capacity."""

from __future__ import annotations

import pytest

from onbeat.domain.model import QueueTarget, WebhookTarget
from onbeat.loops.crowding import SLOW_AFTER_S, Crowding, host_of

NONE: frozenset[str] = frozenset()


def full_of(host: str, *, capacity: int = 10) -> Crowding:
    crowding = Crowding(capacity=capacity)
    for number in range(capacity):
        crowding.begin(bytes([number]), host, at=0)
    return crowding


def test_a_host_is_slow_while_an_attempt_of_its_takes_long() -> None:
    crowding = Crowding(capacity=10)
    crowding.begin(b"old", "hangs", at=0)
    crowding.begin(b"new", "answers", at=SLOW_AFTER_S)
    assert crowding.slow_hosts(now=SLOW_AFTER_S / 2) == NONE
    assert crowding.slow_hosts(now=SLOW_AFTER_S) == {"hangs"}
    crowding.end(b"old")
    assert crowding.slow_hosts(now=SLOW_AFTER_S) == NONE


def test_beyond_the_capacity_slow_hosts_get_nothing_and_every_other_a_share() -> None:
    crowding = full_of("hangs")
    slow_hosts = crowding.slow_hosts(now=1)
    assert not crowding.may_have_extra("hangs", slow_hosts=slow_hosts)
    for token in (b"first", b"second"):
        assert crowding.may_have_extra("answers", slow_hosts=slow_hosts)
        crowding.begin(token, "answers", at=1)
    assert not crowding.may_have_extra("answers", slow_hosts=slow_hosts)
    crowding.end(b"first")
    assert crowding.may_have_extra("answers", slow_hosts=slow_hosts)


def test_attempts_never_exceed_twice_the_capacity() -> None:
    crowding = full_of("hangs")
    for number in range(10):
        assert crowding.may_have_extra(f"host {number}", slow_hosts=NONE)
        crowding.begin(b"extra %d" % number, f"host {number}", at=1)
    assert crowding.extra_room == 0
    assert not crowding.may_have_extra("another", slow_hosts=NONE)


@pytest.mark.parametrize(
    ("url", "host"),
    [
        ("https://Example.com/a", "example.com"),
        ("http://127.0.0.1:80/", "127.0.0.1:80"),
        ("http://[::1]:9/", "[::1]:9"),
    ],
)
def test_paths_of_a_host_are_slow_together_and_ports_apart(url: str, host: str) -> None:
    assert host_of(WebhookTarget(url=url)) == host


def test_queues_have_no_host() -> None:
    assert host_of(QueueTarget(queue="mail")) == ""
