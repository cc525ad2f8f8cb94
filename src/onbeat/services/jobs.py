"""Jobs: create, change, pause, resume, delete. A job changes in one read-decide-write transaction and nowhere else."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from onbeat.clock import Clock
from onbeat.domain.egress import EgressRules
from onbeat.domain.errors import DefinitionError, JobNotFound, KeyTaken, OnbeatError, StateConflict, VersionMismatch
from onbeat.domain.ids import JOB_ID_BITS
from onbeat.domain.kept_out import KeptOut
from onbeat.domain.misfire import InstantRange
from onbeat.domain.model import SECOND_US, Definition, WebhookTarget, decode_definition, encode_definition
from onbeat.domain.preview import kept_out_of
from onbeat.domain.recorded import without_recorded
from onbeat.domain.states import JobState, RunState, SkipReason
from onbeat.domain.timetable import after_finish_of, calendar_names
from onbeat.services.almanac import Almanac
from onbeat.services.dispatch import Dispatch
from onbeat.services.job_rules import JobDraft, check_draft
from onbeat.services.running import RunningHere
from onbeat.services.signing_secrets import SigningSecrets
from onbeat.services.wake import Wake
from onbeat.store.contract import Store
from onbeat.store.values import (
    KEEP,
    AfterFinish,
    JobChange,
    JobFilter,
    KeepClock,
    Mark,
    NewJob,
    Page,
    Pause,
    RunFilter,
    StoredJob,
)

SETTLE_TRIES = 100
"""How often a change first lets the dispatcher record what of the job is due, 128 instants at a time; what is left
after that, because ever more instants became due meanwhile, is recorded as missed."""

LARGEST_PAGE = 1_000


@dataclass(frozen=True, slots=True)
class Change:
    """How a job is to look: the draft made from what stands now."""

    draft: Callable[[StoredJob, Definition | None], JobDraft]
    if_version: int | None = None


class _ClockBehind(Exception):
    """The job's clock shows an instant that is past: the dispatcher comes first."""


class Jobs:
    """What people do with jobs."""

    def __init__(
        self,
        *,
        store: Store,
        clock: Clock,
        dispatch: Dispatch,
        dispatch_wake: Wake,
        running: RunningHere,
        secrets: SigningSecrets,
        almanac: Almanac,
        egress: EgressRules,
        can_be_called: bool = False,
    ) -> None:
        self._store = store
        self._clock = clock
        self._dispatch = dispatch
        self._dispatch_wake = dispatch_wake
        self._running = running
        self._secrets = secrets
        self._almanac = almanac
        self._egress = egress
        self._can_be_called = can_be_called

    async def create(self, draft: JobDraft, *, namespace: str, ids: Sequence[int] | None = None) -> StoredJob:
        """Save a new job; `ids` as for create_many. Raises DefinitionError, KeyTaken."""
        (answer,) = await self.create_many([draft], namespace=namespace, ids=ids)
        if isinstance(answer, OnbeatError):
            raise answer
        return answer

    async def create_many(
        self, drafts: Sequence[JobDraft], *, namespace: str, ids: Sequence[int] | None = None
    ) -> list[StoredJob | OnbeatError]:
        """Save many in one transaction; each is accepted or refused by itself, in order.

        `ids`, where the request determines them: what an earlier try of that request saved is answered as it stands.
        """
        answers = await self._save_new(drafts, ids or [secrets.randbits(JOB_ID_BITS) for _ in drafts], namespace)
        for place, job_id in enumerate(ids or ()):
            answer = answers[place]
            if isinstance(answer, OnbeatError):
                answers[place] = await self._earlier_try(drafts[place], job_id, namespace, refusal=answer)
        self._dispatch_wake.set()
        return answers

    async def _save_new(
        self, drafts: Sequence[JobDraft], ids: Sequence[int], namespace: str
    ) -> list[StoredJob | OnbeatError]:
        answers: list[StoredJob | OnbeatError | None] = [None] * len(drafts)
        jobs: list[NewJob] = []
        places: list[int] = []
        await self._almanac.refresh(now=self._clock.now())
        now = self._clock.now()  # one moment for all: what `max_fires` counts from is when the job says it was created
        for place, draft in enumerate(drafts):
            try:
                jobs.append(await self._new_job(draft, ids[place], namespace, now=now))
                places.append(place)
            except DefinitionError as error:
                answers[place] = error
        for place, stored in zip(places, await self._store.jobs.create(jobs, now=now), strict=True):
            answers[place] = stored if stored is not None else _key_taken(drafts[place].key)
        return [answer for answer in answers if answer is not None]

    async def _earlier_try(
        self, draft: JobDraft, job_id: int, namespace: str, *, refusal: OnbeatError
    ) -> StoredJob | OnbeatError:
        """What an earlier try of the same request saved, if it did; a job that was deleted since is made anew."""
        job = await self._store.jobs.get(job_id)
        if job is None:
            return refusal
        return job if job.state != JobState.DELETED else (await self.create_many([draft], namespace=namespace))[0]

    async def get(self, job_id: int) -> StoredJob:
        """Raises JobNotFound, also for deleted jobs."""
        job = await self._store.jobs.get(job_id)
        if job is None or job.state == JobState.DELETED:
            raise JobNotFound
        return job

    async def namespace_of(self, job_id: int) -> str | None:
        """Where the job belongs, deleted ones too: their runs can still be looked at. None: never existed."""
        job = await self._store.jobs.get(job_id)
        return None if job is None else job.namespace

    async def get_by_key(self, namespace: str, key: str) -> StoredJob | None:
        """The job with that key, if there is one."""
        return await self._store.jobs.get_by_key(namespace, key)

    async def find(self, where: JobFilter, page: Page) -> list[StoredJob]:
        """Jobs, newest first."""
        return await self._store.jobs.find(where, page)

    async def update(self, job_id: int, change: Change) -> StoredJob:
        """Change a job. Never fires a past instant; a change that leaves the schedules alone leaves the clock alone.

        A draft that looks like what stands there changes nothing at all: no version, no `updated_at`.

        A job in `error` becomes active again when its new definition is acceptable.
        """
        current = await self.get(job_id)
        await self._check_secret(change.draft(current, _readable(current)), current.namespace)

        def decide(stored: StoredJob, now: int) -> JobChange | None:
            _check_version(stored, change.if_version)
            existing = _readable(stored)
            draft = change.draft(stored, existing)
            rules = check_draft(
                draft,
                job_id=job_id,
                now=now,
                created_at=stored.created_at,
                egress=self._egress,
                calendars=self._almanac.calendars(stored.namespace),
                can_be_called=self._can_be_called,
                existing=existing,
            )
            if stored.state != JobState.ERROR and _looks_alike(stored, existing, draft, rules.definition):
                return None
            same_instants = existing is not None and existing.schedules == rules.definition.schedules
            next_fire_at: int | KeepClock | None = rules.next_fire_at
            state: JobState | None = None
            is_paused = stored.state == JobState.PAUSED
            if is_paused or (same_instants and stored.state != JobState.ERROR):
                next_fire_at = KEEP
            else:
                state = JobState.ACTIVE if rules.next_fire_at is not None else JobState.COMPLETED
            if is_paused and not same_instants:  # what the pause goes on to skip is planned by the new schedules
                state = JobState.PAUSED
            return JobChange(
                key=draft.key,
                name=draft.name,
                tags=draft.tags,
                definition=encode_definition(rules.definition),
                max_running=rules.definition.max_running,
                calendars=calendar_names(rules.definition.schedules),
                after_finish=_after_finish(rules.definition),
                state=state if is_paused or state != stored.state else None,
                reason=stored.reason if is_paused else None,
                paused_at=now if is_paused else None,
                paused_until=stored.paused_until if is_paused else None,
                paused_by=stored.paused_by if is_paused else None,
                next_fire_at=next_fire_at,
                marks=() if same_instants else self._marks_until(stored, existing, now),
            )

        return await self._change(job_id, decide)

    async def pause(self, job_id: int, *, note: str | None, cancel: bool, until: int | None = None) -> StoredJob:
        """No new run and no new attempt from now on; what runs goes on, or is asked to stop.

        A job that is paused already gets the new note and end; one that a wider pause holds is then paused by itself.
        """

        def decide(stored: StoredJob, now: int) -> JobChange | None:
            if stored.state == JobState.PAUSED:
                reason = stored.reason if note is None else note
                if not cancel and (reason, until, None) == (stored.reason, stored.paused_until, stored.paused_by):
                    return None
                paused_at = now if stored.paused_at is None else stored.paused_at
                return self._paused(stored, paused_at, reason=reason, until=until, by=None, cancel=cancel)
            if stored.state != JobState.ACTIVE:
                raise StateConflict(f"the job is {stored.state}; only an active job can be paused", field="state")
            return self._paused(stored, now, reason=note, until=until, by=None, cancel=cancel)

        job = await self._change(job_id, decide)
        if cancel:
            await self._stop_here(job_id)
        return job

    async def hold(self, job_id: int, pause: Pause) -> None:
        """Pause a job because a wider pause covers it; one that is not active is left as it is."""

        def decide(stored: StoredJob, now: int) -> JobChange | None:
            if stored.state != JobState.ACTIVE:
                return None
            return self._paused(stored, now, reason=pause.note, until=None, by=pause.tag, cancel=pause.cancels)

        await self._change(job_id, decide)
        if pause.cancels:
            await self._stop_here(job_id)

    async def resume(self, job_id: int) -> StoredJob:
        """Go on at the next future instant; those of the pause are recorded as one skipped(paused) row: no burst.

        Where a wider pause covers the job, that one holds it from now on.
        """

        def decide(stored: StoredJob, now: int) -> JobChange | None:
            if stored.state == JobState.ACTIVE:
                return None
            if stored.state != JobState.PAUSED:
                raise StateConflict(
                    f"the job is {stored.state}; only a paused job can be resumed",
                    field="state",
                    remedy="mend its definition with PATCH" if stored.state == JobState.ERROR else None,
                )
            if stored.paused_by is not None:
                held_by = f"of the tag {stored.paused_by!r}" if stored.paused_by else "of everything"
                raise StateConflict(
                    f"the job is held by the pause {held_by}", field="state", remedy="end that one with POST /v1/resume"
                )
            return self._resumed(stored, decode_definition(stored.definition), ended_at=now)

        return await self._change(job_id, decide)

    async def resume_after(self, job_id: int, tag: str | None, *, ended_at: int) -> None:
        """Resume a job whose pause is over: of `tag`, or its own one where that is None. It ended at its
        `paused_until` or at `ended_at`, whichever is earlier: what came due since is late, not paused.
        """

        def decide(stored: StoredJob, now: int) -> JobChange | None:
            if stored.state != JobState.PAUSED or stored.paused_by != tag:
                return None
            if tag is None and (stored.paused_until is None or stored.paused_until > now):
                return None  # it was paused anew meanwhile
            try:
                definition = decode_definition(stored.definition)
                over_at = ended_at if stored.paused_until is None else min(ended_at, stored.paused_until)
                return self._resumed(stored, definition, ended_at=max(over_at, stored.recorded_until))
            except (DefinitionError, ValueError) as error:
                return JobChange(state=JobState.ERROR, reason=str(error), next_fire_at=None)

        await self._change(job_id, decide)

    async def delete(self, job_id: int, *, if_version: int | None, cancel: bool = False) -> None:
        """Hide the job and free its key; what waits is cancelled, what runs may finish or is asked to stop, the
        history stays.
        """

        def decide(stored: StoredJob, now: int) -> JobChange | None:
            if stored.state == JobState.DELETED:
                return None
            _check_version(stored, if_version)
            marks = self._marks_until(stored, _readable(stored), now)
            return JobChange(
                state=JobState.DELETED,
                next_fire_at=None,
                marks=marks,
                cancels_pending=True,
                cancels_running=cancel,
            )

        await self._change(job_id, decide)
        if cancel:
            await self._stop_here(job_id)

    async def next_fires(self, job: StoredJob, *, count: int) -> list[int]:
        """The next planned instants, by the function that the dispatcher uses."""
        await self._almanac.refresh(now=self._clock.now())
        schedules = decode_definition(job.definition).schedules
        timetable = self._almanac.timetable(job.namespace, schedules, job_id=job.job_id)
        instants: list[int] = []
        instant = job.next_fire_at
        if after_finish_of(schedules) is not None:
            return [] if instant is None else [instant]  # those after it depend on when it ends
        while instant is not None and len(instants) < count:
            instants.append(instant)
            instant = timetable.next_after(instant)
        return instants

    async def kept_out(self, job: StoredJob, *, fires: Sequence[int]) -> tuple[KeptOut, ...]:
        """What calendars remove or move between now and the last of `fires`."""
        if not fires:
            return ()
        schedules = decode_definition(job.definition).schedules
        timetable = self._almanac.timetable(job.namespace, schedules, job_id=job.job_id)
        return await asyncio.to_thread(kept_out_of, timetable, after=self._clock.now(), until=fires[-1])

    async def _new_job(self, draft: JobDraft, job_id: int, namespace: str, *, now: int) -> NewJob:
        await self._check_secret(draft, namespace)
        rules = check_draft(
            draft,
            job_id=job_id,
            now=now,
            created_at=now,
            egress=self._egress,
            calendars=self._almanac.calendars(namespace),
            can_be_called=self._can_be_called,
        )
        return NewJob(
            job_id=job_id,
            namespace=namespace,
            key=draft.key,
            name=draft.name,
            tags=draft.tags,
            definition=encode_definition(rules.definition),
            max_running=rules.definition.max_running,
            state=JobState.ACTIVE if rules.next_fire_at is not None else JobState.COMPLETED,
            next_fire_at=rules.next_fire_at,
            calendars=calendar_names(rules.definition.schedules),
            after_finish=_after_finish(rules.definition),
        )

    async def _check_secret(self, draft: JobDraft, namespace: str) -> None:
        target = draft.definition.target
        if isinstance(target, WebhookTarget) and not await self._secrets.exists(namespace, target.secret):
            raise DefinitionError(
                "secret_unknown",
                f"there is no signing secret named {target.secret!r}",
                field="target.secret",
                remedy="create it with POST /v1/secrets/{name}:rotate, or leave the field out to use `default`",
            )

    async def _stop_here(self, job_id: int) -> None:
        """Let attempts in this process hear at once that they were asked to stop; others hear with a heartbeat."""
        where = RunFilter(job_id=job_id, states=frozenset({RunState.RUNNING}))
        running = await self._store.runs.find(where, Page(limit=LARGEST_PAGE))
        self._running.cancel([run.key for run in running if run.cancel_requested])

    async def _change(self, job_id: int, decide: Callable[[StoredJob, int], JobChange | None]) -> StoredJob:
        """Let the dispatcher record what is due, then change; the clock's own instants are never lost in between."""
        await self._almanac.refresh(now=self._clock.now())
        for tries_left in reversed(range(SETTLE_TRIES)):

            def settled(stored: StoredJob, tries_left: int = tries_left) -> JobChange | None:
                if stored.state == JobState.DELETED:
                    raise JobNotFound
                now = self._clock.now()
                is_behind = stored.next_fire_at is not None and stored.next_fire_at <= now
                # A restart after the host's clock was set back finds instants recorded that lie ahead: a job's time
                # never runs behind its own records, or a clock would be set on an instant that has one.
                change = decide(stored, max(now, stored.recorded_until))
                if is_behind and change is not None and change.next_fire_at is not KEEP and tries_left:
                    raise _ClockBehind
                return change

            try:
                job = await self._store.jobs.change(job_id, now=self._clock.now(), decide=settled)
            except _ClockBehind:
                await self._dispatch.fire_due(only=job_id)
                continue
            if job is None:
                raise JobNotFound
            self._dispatch_wake.set()
            return job
        raise AssertionError("the last try never asks for the dispatcher")

    def _paused(
        self, stored: StoredJob, paused_at: int, *, reason: str | None, until: int | None, by: str | None, cancel: bool
    ) -> JobChange:
        """The change that pauses a job from `paused_at`, or says anew how it is paused."""
        marks = self._marks_until(stored, _readable(stored), paused_at) if stored.state == JobState.ACTIVE else ()
        return JobChange(
            state=JobState.PAUSED,
            reason=reason,
            paused_at=paused_at,
            paused_until=until,
            paused_by=by,
            next_fire_at=None,
            marks=marks,
            cancels_pending=cancel,
            cancels_running=cancel,
        )

    def _resumed(self, stored: StoredJob, definition: Definition, *, ended_at: int) -> JobChange:
        """The change that ends a pause at `ended_at`: the clock shows the next instant after it, though it be past."""
        ended_at = ended_at if stored.paused_at is None else max(ended_at, stored.paused_at)
        next_fire_at = self._almanac.timetable(stored.namespace, definition.schedules, job_id=stored.job_id).next_after(
            ended_at
        )
        return JobChange(
            state=JobState.ACTIVE if next_fire_at is not None else JobState.COMPLETED,
            next_fire_at=next_fire_at,
            marks=self._marks_until(stored, definition, ended_at),
        )

    def _marks_until(self, stored: StoredJob, definition: Definition | None, now: int) -> tuple[Mark, ...]:
        """Planned instants up to `now` that have no record and get no run: those of a pause as skipped, and those that
        are due and will not be dispatched any more as missed. `definition` is the one that planned them.
        """
        if definition is None:
            return ()
        if stored.state == JobState.PAUSED and stored.paused_at is not None:
            after, state, reason = stored.paused_at, RunState.SKIPPED, SkipReason.PAUSED
        elif stored.next_fire_at is not None:
            after, state, reason = stored.next_fire_at - 1, RunState.MISSED, None
        else:
            return ()
        try:
            timetable = self._almanac.timetable(stored.namespace, definition.schedules, job_id=stored.job_id)
        except (
            DefinitionError
        ):  # written by hand: it plans nothing, and must not keep the job from being mended or deleted
            return ()
        first = timetable.next_after(after)
        count = timetable.count(after, now)
        last = timetable.latest(after, now)
        if first is None or last is None or count == 0:
            return ()
        whole = InstantRange(first, last, count)
        pieces = without_recorded(timetable, whole, stored.recorded) if stored.recorded else (whole,)
        return tuple([Mark(piece.first, piece.last, piece.count, state, reason) for piece in pieces])


def _after_finish(definition: Definition) -> AfterFinish | None:
    schedule = after_finish_of(definition.schedules)
    return None if schedule is None else AfterFinish(schedule.every_s * SECOND_US, schedule.end_at)


def _readable(stored: StoredJob) -> Definition | None:
    try:
        return decode_definition(stored.definition)
    except DefinitionError:
        return None


def _looks_alike(stored: StoredJob, existing: Definition | None, draft: JobDraft, definition: Definition) -> bool:
    return existing == definition and (stored.key, stored.name, stored.tags) == (
        stored.key if draft.key is None else draft.key,
        draft.name,
        draft.tags,
    )


def _check_version(stored: StoredJob, if_version: int | None) -> None:
    if if_version is not None and stored.version != if_version:
        raise VersionMismatch(
            f"the job is at version {stored.version}, you sent {if_version}",
            field="If-Match",
            remedy="read the job again and repeat your change on it",
        )


def _key_taken(key: str | None) -> KeyTaken:
    return KeyTaken(
        f"another job already has the key {key!r}",
        field="key",
        remedy="use PUT /v1/jobs/by-key/{key} to change that job",
    )
