"""The bytes of a request, as a receiver's socket sees them."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from tests.delivery.receivers import NOW, OK, SMALL, Receiver, Seen, Sending, delivery, says

from onbeat.delivery.request import build_request, prepare
from onbeat.domain.egress import EgressRules
from onbeat.domain.ids import format_job_id, format_run_id
from onbeat.domain.model import WebhookTarget
from onbeat.domain.outcome import OutcomeKind
from onbeat.receiver import verify

SECRET = "whsec_" + "a2tr" * 10 + "a2s="  # KEY: 32 times "k"


async def seen_by_receiver(**fields: object) -> Seen:
    async with Receiver(says(OK)) as receiver, Sending() as sending:
        outcome = await sending.outcome_of(delivery(f"http://127.0.0.1:{receiver.port}/hook?a=1", **fields))  # type: ignore[arg-type]
    assert outcome.kind is OutcomeKind.SUCCEEDED
    (seen,) = receiver.seen
    return seen


async def test_every_header_of_the_contract_is_there() -> None:
    seen = await seen_by_receiver(
        job_id=7, attempt=3, headers={"X-Tenant": "a", "Content-Type": "text/plain"}, body="hi"
    )
    one = delivery("https://example.com/", job_id=7)
    run_id = format_run_id(one.key)
    trace = seen.headers.pop("traceparent")
    assert seen.line == "POST /hook?a=1 HTTP/1.1"
    assert seen.headers.pop("host").startswith("127.0.0.1:")
    assert seen.headers.pop("user-agent").startswith("onbeat/")
    assert seen.headers.pop("webhook-signature").startswith("v1,")
    assert seen.headers == {
        "X-Tenant": "a",
        "Content-Type": "text/plain",
        "accept-encoding": "identity",
        "webhook-id": run_id,
        "webhook-timestamp": str(NOW // 1_000_000),
        "idempotency-key": f'"{run_id}"',
        "onbeat-job": format_job_id(7),
        "onbeat-attempt": "3",
        "onbeat-trigger": "schedule",
        "onbeat-scheduled-at": "2027-01-15T07:59:58.500000Z",
        "onbeat-lateness-ms": "1500",
        "content-length": "2",
    }
    version, trace_id, span_id, flags = trace.split("-")
    assert (version, len(trace_id), len(span_id), flags) == ("00", 32, 16, "01")


async def test_the_stored_body_is_what_is_signed_and_sent_on_every_attempt() -> None:
    body = '{"name":"café","n":1.0}'
    first = await seen_by_receiver(job_id=7, body=body)
    second = await seen_by_receiver(job_id=7, body=body, attempt=2)
    for seen in (first, second):
        assert seen.body == body.encode()
        assert seen.headers["content-length"] == "24"
        call = verify(seen.headers, seen.body, SECRET, now_s=NOW / 1e6)
        assert call.run_id == first.headers["webhook-id"]
    assert first.headers["traceparent"][:35] == second.headers["traceparent"][:35]
    assert first.headers["traceparent"] != second.headers["traceparent"]


async def test_the_envelope_repeats_what_the_signature_does_not_cover() -> None:
    seen = await seen_by_receiver(job_id=7, payload='{"b": 1.0,"a":"é"}')
    assert seen.headers["content-type"] == "application/json"
    assert seen.body.endswith('"payload":{"b": 1.0,"a":"é"}}'.encode())
    assert json.loads(seen.body) == {
        "run_id": seen.headers["webhook-id"],
        "job": {"id": format_job_id(7), "key": "daily", "name": "Daily"},
        "scheduled_at": "2027-01-15T07:59:58.500000Z",
        "attempt": 1,
        "trigger": "schedule",
        "payload": {"b": 1.0, "a": "é"},
    }


async def test_a_run_may_bring_its_own_payload() -> None:
    seen = await seen_by_receiver(payload='{"a":1}', run_payload='{"a":2}')
    assert json.loads(seen.body)["payload"] == {"a": 2}
    assert json.loads((await seen_by_receiver()).body)["payload"] is None


@pytest.mark.parametrize("method", ["GET", "HEAD"])
async def test_get_and_head_carry_no_body(method: str) -> None:
    seen = await seen_by_receiver(method=method, payload='{"a":1}')
    assert seen.line.startswith(method)
    assert "content-length" not in seen.headers
    assert "content-type" not in seen.headers
    verify(seen.headers, b"", SECRET, now_s=NOW / 1e6)


async def test_delete_carries_a_body_only_where_the_job_brings_one() -> None:
    assert (await seen_by_receiver(method="DELETE", payload="1")).headers["content-length"] == "0"
    assert (await seen_by_receiver(method="DELETE", body="x")).body == b"x"


def test_each_retry_has_a_fresh_timestamp_and_signature() -> None:
    one = delivery("https://example.com/", body="x")
    template = prepare(one.target, rules=EgressRules())
    early = build_request(one, template, now=NOW)
    late = build_request(one, template, now=NOW + 3_600_000_000)
    assert f"webhook-timestamp: {NOW // 1_000_000 + 3_600}\r\n".encode() in late
    assert early.split(b"\r\n\r\n")[1] == late.split(b"\r\n\r\n")[1] == b"x"
    assert early != late


def test_jobs_with_one_target_share_what_is_built_for_it() -> None:
    rules = EgressRules()

    def target(**fields: str) -> WebhookTarget:
        return WebhookTarget(url="https://example.com/", headers={"X-A": "1"}, **fields)

    assert prepare(target(payload="[1]"), rules=rules) is prepare(target(payload="[1]"), rules=rules)
    others = [
        target(payload="[2]"), target(body="[1]"), target(payload="[1]", method="PUT"),
        WebhookTarget(url="https://example.com/", headers={"X-A": "2"}, payload="[1]"),
        WebhookTarget(url="https://example.com/x", headers={"X-A": "1"}, payload="[1]"),
    ]  # fmt: skip
    assert len({id(prepare(other, rules=rules)) for other in [target(payload="[1]"), *others]}) == 6


def test_of_targets_with_long_bodies_few_are_kept_and_they_push_out_no_short_ones() -> None:
    rules = EgressRules()
    short = WebhookTarget(url="https://example.com/")
    long = [WebhookTarget(url=f"https://example.com/{number}", body="x" * 100_000) for number in range(100)]
    long_header = WebhookTarget(url="https://example.com/", headers={"x-a": "y" * 10_000})
    first, of_short, of_header = [prepare(target, rules=rules) for target in (long[0], short, long_header)]
    assert prepare(long[0], rules=rules) is first
    for target in long:
        prepare(target, rules=rules)
    assert prepare(long[0], rules=rules) is not first, "thousands of them would fill the memory"
    assert prepare(short, rules=rules) is of_short
    assert prepare(long_header, rules=rules) is not of_header, "headers count, too"
    assert prepare(long[-1], rules=rules) is prepare(long[-1], rules=rules)


@pytest.mark.parametrize(
    "fields",
    [
        lambda number: {"headers": {f"x-{number}-{place}-{'n' * 90}": "" for place in range(99)}},
        lambda number: {"headers": {"x-a": f"{number}-{'y' * 10_000}"}},
        lambda number: {"headers": {f"x-{place}": f"{number}" for place in range(99)}},
        lambda number: {"payload": f'"{number}' + "\U0001f600" * 1_900 + '"'},
    ],
    ids=["long names", "long value", "many headers", "letters of four bytes"],
)
def test_what_takes_much_memory_is_not_kept_a_thousand_times(fields: Callable[[int], dict[str, Any]]) -> None:
    rules = EgressRules()
    tracemalloc.start()
    try:
        for number in range(600):
            prepare(WebhookTarget(url="https://example.com/", **fields(number)), rules=rules)
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 3_000_000


@pytest.mark.parametrize(
    "fields",
    [
        {"headers": {"X-A": "a\r\nX-Injected: 1"}},
        {"headers": {"Host": "evil"}},
        {"headers": {"X-A": 1}},
        {"headers": {"X-A": ["unhashable"]}},
        {"headers": "X-A: 1"},
        {"body": 1},
        {"method": ["POST"]},
        {"method": "GET\r\n"},
        {"url": "http://127.1/"},
        {"url": "http://10.0.0.1/"},
        {"url": "http://example.com/a b"},
        {"url": "file:///etc/passwd"},
        {"payload": "{"},
        {"payload": "NaN"},
        {"run_payload": "}"},
        {"run_payload": "\ud800"},
        {"keys": ()},
        {"number": 2**62},
        {"job_name": "\ud800"},
        {"timeout_s": 0},
        {"timeout_s": float("nan")},
        {"timeout_s": float("inf")},
    ],
)
async def test_a_bad_stored_row_is_unsendable_and_touches_no_socket(fields: dict[str, object]) -> None:
    async with Receiver(says(OK)) as receiver, Sending() as sending:
        fields = {"url": f"http://127.0.0.1:{receiver.port}/"} | fields
        outcome = await sending.outcome_of(delivery(**fields))  # type: ignore[arg-type]
        assert outcome.kind is OutcomeKind.UNSENDABLE
        assert receiver.connections == 0


async def test_a_request_that_cannot_be_built_after_all_harms_no_other_one_and_costs_no_place() -> None:
    async with Receiver(says(OK)) as receiver, Sending(limits=replace(SMALL, connections_per_origin=4)) as sending:
        url = f"http://127.0.0.1:{receiver.port}/"
        for batch in range(3):
            mixed = [delivery(url, number=10 * batch + number) for number in range(4)]
            mixed[1] = msgspec.structs.replace(mixed[1], callback_url="https://jöbs.example/")
            kinds = [outcome.kind for outcome in await asyncio.gather(*map(sending.outcome_of, mixed))]
            assert kinds == [OutcomeKind.SUCCEEDED, OutcomeKind.UNSENDABLE, *[OutcomeKind.SUCCEEDED] * 2]
