"""Histories for the checker's own tests: valid ones made step by step, and the small pieces to break them with."""

from __future__ import annotations

from hypothesis import strategies as st
from msgspec.structs import replace

from onbeat.domain.ids import RunKey
from onbeat.domain.model import SECOND_US
from onbeat.domain.outcome import OutcomeKind
from onbeat.domain.states import RunState, Trigger
from onbeat.store.values import AttemptView, FinishResult, RunView
from onbeat.testing.events import (
    Call,
    Delivery,
    EndAnswered,
    EndAsked,
    Extended,
    Granted,
    History,
    Planned,
    ReviveAsked,
    TakenBack,
)

START = 1_800_000_000 * SECOND_US
LEASE_US = SECOND_US
STEP_US = 10_000
ENDS = ("succeeds", "fails", "dies_before_sending", "dies_after_sending", "freezes", "gives_back")


def instant(second: int) -> int:
    return START + second * SECOND_US


def run_of(key: RunKey, state: RunState, *, attempt: int = 0, count: int = 1, until: int | None = None) -> RunView:
    return RunView(
        key=key,
        state=state,
        trigger=Trigger.SCHEDULE,
        job_version=1,
        attempt=attempt,
        created_at=key.scheduled_at,
        count=count,
        until=until,
    )


class Life:
    """The life of one run, attempt after attempt, as a correct cluster lives it."""

    def __init__(self, key: RunKey) -> None:
        self.key = key
        self.now = key.scheduled_at + STEP_US
        self.attempt = 0
        self.state = RunState.PENDING
        self.calls: list[Call] = []
        self.attempts: list[AttemptView] = []
        self.deliveries: list[Delivery] = []
        self._tokens = 0

    def live(self, end: str) -> None:
        """One grant and what became of it."""
        token = self._grant()
        granted_at = self.now
        if end == "gives_back":
            self._finish(token, FinishResult.WILL_RETRY, gives_back=True)
            self.attempt -= 1
        elif end == "succeeds":
            self._deliver(200)
            self._finish(token, FinishResult.ENDED)
            self.state = RunState.SUCCEEDED
            self._note(OutcomeKind.SUCCEEDED, granted_at)
        elif end == "fails":
            self._deliver(503)
            self._finish(token, FinishResult.WILL_RETRY)
            self._note(OutcomeKind.HTTP_STATUS, granted_at)
        else:
            if end != "dies_before_sending":
                self._deliver(None)
            self._extend(token)
            self._expire(granted_at)
            if end == "freezes":  # its worker comes back, with its last word
                self._finish(token, FinishResult.LEASE_LOST)

    def _grant(self) -> bytes:
        self._tokens += 1
        self.attempt += 1
        token = self.key.scheduled_at.to_bytes(8, "big") + self._tokens.to_bytes(8, "big")
        asked_at, answered_at = self._pass(), self._pass()
        self.calls.append(
            Granted(
                asked_at, answered_at, self.key, token, self.attempt, answered_at + LEASE_US, self.now + 86_400_000_000
            )
        )
        return token

    def _extend(self, token: bytes) -> None:
        self.calls.append(Extended(self._pass(), self._pass(), self.key, token, self.now + LEASE_US))

    def _deliver(self, status: int | None) -> None:
        self.deliveries.append(Delivery(self.key, self.attempt, self._pass(), status))

    def _finish(self, token: bytes, result: FinishResult, *, gives_back: bool = False) -> None:
        asked_at = self._pass()
        self.calls.append(EndAsked(asked_at, self.key, token, gives_back))
        self.calls.append(EndAnswered(asked_at, self._pass(), self.key, token, result))

    def _expire(self, granted_at: int) -> None:
        self.now += 2 * LEASE_US
        self.calls.append(TakenBack(self._pass(), self._pass(), self.key, FinishResult.WILL_RETRY))
        self._note(OutcomeKind.LEASE_LOST, granted_at)

    def _note(self, kind: OutcomeKind, started_at: int) -> None:
        self.attempts.append(AttemptView(self.attempt, kind.value, started_at, self.now - started_at, "worker"))

    def _pass(self) -> int:
        self.now += STEP_US
        return self.now


def whole(lives: list[Life], marks: list[RunView], planned: list[Planned]) -> History:
    runs = [run_of(life.key, life.state, attempt=life.attempt) for life in lives] + marks
    return History(
        cut_off=max((at for plan in planned for at in plan.must), default=START),
        planned=planned,
        runs=runs,
        attempts={life.key: life.attempts for life in lives},
        deliveries=[delivery for life in lives for delivery in life.deliveries],
        calls=[call for life in lives for call in life.calls],
        live_count=0,
    )


@st.composite
def valid_histories(draw: st.DrawFn) -> History:
    """Jobs that fire each second or so; what nobody could dispatch is a mark, one instant or a range."""
    lives: list[Life] = []
    marks: list[RunView] = []
    planned: list[Planned] = []
    for job_id in range(1, draw(st.integers(1, 3)) + 1):
        gap = draw(st.integers(1, 3))
        instants = [instant(gap * number) for number in range(draw(st.integers(1, 8)))]
        maybe = [at for at in instants if draw(st.integers(0, 9)) == 0]
        planned.append(Planned(job_id, tuple(at for at in instants if at not in maybe), tuple(maybe)))
        left = [at for at in instants if at not in maybe or draw(st.booleans())]
        while left:
            # A range holds what is planned in it and no instant that was left out.
            longest = next((n for n in range(1, len(left)) if left[n] != left[n - 1] + gap * SECOND_US), len(left))
            length = draw(st.integers(1, longest))
            if draw(st.booleans()):
                state = draw(st.sampled_from([RunState.MISSED, RunState.SKIPPED]))
                until = left[length - 1] if length > 1 else None
                marks.append(run_of(RunKey(job_id, left[0]), state, count=length, until=until))
                left = left[length:]
                continue
            life = Life(RunKey(job_id, left.pop(0)))
            for end in draw(st.lists(st.sampled_from(ENDS[1:]), max_size=3)):
                life.live(end)
            life.live("succeeds")
            lives.append(life)
    return whole(lives, marks, planned)


def history_of(*ends: str, seconds: int = 1) -> History:
    """One job; the run of its first instant lives so, those of the other seconds succeed at once."""
    lives = [Life(RunKey(1, instant(second))) for second in range(seconds)]
    for end in ends:
        lives[0].live(end)
    for life in lives[1:]:
        life.live("succeeds")
    return whole(lives, [], [Planned(1, tuple(life.key.scheduled_at for life in lives))])


def with_calls(history: History, *calls: Call) -> History:
    """More calls."""
    return replace(history, calls=[*history.calls, *calls])


def revived(key: RunKey, at: int) -> ReviveAsked:
    return ReviveAsked(at, key)
