"""Which hosts count as slow, and who may begin beyond a worker's capacity."""

from __future__ import annotations

import pytest

from onbeat.domain.model import QueueTarget, WebhookTarget
from onbeat.loops.crowding import EXTRA_SHARE, MOST_HOSTS, PUT_OFF_S, RETURNS_PER_END, SLOW_AFTER_S, Crowding, host_of

NONE: frozenset[str] = frozenset()


def full_of(host: str, *, capacity: int = 10) -> Crowding:
    crowding = Crowding(capacity=capacity)
    for number in range(capacity):
        crowding.begin(bytes([number]), host, at=0)
    return crowding


def test_a_host_is_slow_while_it_keeps_an_attempt_in_flight_waiting() -> None:
    crowding = Crowding(capacity=10)
    crowding.begin(b"old", "hangs", at=0)
    crowding.begin(b"new", "answers", at=1)
    assert crowding.slow_hosts([]) == NONE
    assert crowding.slow_hosts([b"old"]) == {"hangs"}
    crowding.end(b"old", at=1)
    assert crowding.slow_hosts([b"old"]) == NONE


def test_beyond_the_capacity_slow_hosts_get_nothing_and_every_other_a_share() -> None:
    crowding = full_of("hangs")
    slow_hosts = crowding.slow_hosts([b"\x00"])
    assert not crowding.may_have_extra("hangs", slow_hosts=slow_hosts)
    for token in (b"first", b"second"):
        assert crowding.may_have_extra("answers", slow_hosts=slow_hosts)
        crowding.begin(token, "answers", at=1)
    assert not crowding.may_have_extra("answers", slow_hosts=slow_hosts)
    crowding.end(b"first", at=1)
    assert crowding.may_have_extra("answers", slow_hosts=slow_hosts)


def test_attempts_never_exceed_twice_the_capacity() -> None:
    crowding = full_of("hangs")
    for number in range(10):
        assert crowding.may_have_extra(f"host {number}", slow_hosts=NONE)
        crowding.begin(b"extra %d" % number, f"host {number}", at=1)
    assert crowding.extra_room == 0
    assert not crowding.may_have_extra("another", slow_hosts=NONE)


def test_what_is_put_off_comes_back_twice_as_fast_as_its_host_ends_attempts() -> None:
    crowding = full_of("slow", capacity=100)
    delays = [crowding.put_off("slow", now=2) for _ in range(100)]
    assert delays[0] == 2  # as long as an attempt takes
    ends_per_s = 100 / 2
    assert delays[99] - delays[0] == pytest.approx(99 / (RETURNS_PER_END * ends_per_s))


def test_at_a_host_that_hangs_it_comes_back_late_and_not_ever_more_slowly() -> None:
    crowding = full_of("hangs", capacity=100)
    delays = [crowding.put_off("hangs", now=3_600) for _ in range(100)]
    assert delays[0] == PUT_OFF_S
    assert delays[99] - delays[0] == pytest.approx(99 / (100 / EXTRA_SHARE))


def test_lines_are_of_one_host_each_and_forgotten_when_all_came_back() -> None:
    crowding = full_of("hangs")
    for _ in range(100):
        crowding.put_off("hangs", now=100)
    assert crowding.put_off("another", now=100) == SLOW_AFTER_S
    assert crowding.put_off("hangs", now=1_000) == PUT_OFF_S
    for number in range(3 * MOST_HOSTS):
        crowding.put_off(str(number), now=2_000 + number)
    assert len(crowding._returns_at) <= MOST_HOSTS


def test_the_last_attempt_that_ended_tells_how_long_they_take() -> None:
    crowding = full_of("slow", capacity=2)
    crowding.end(b"\x00", at=3)
    assert crowding.put_off("slow", now=1) == 3
    crowding.end(b"\x01", at=3)
    assert crowding.put_off("slow", now=100) == SLOW_AFTER_S  # nothing of it is in flight any more


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
