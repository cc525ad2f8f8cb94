"""`onbeat jobs …`: define jobs, look at them, stop and start them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from onbeat.cli import bulk_jobs
from onbeat.cli.backfills import backfill_job
from onbeat.cli.connection import DEFAULT_SERVER, CursorOption, JsonOption, LimitOption, ServerOption, connect
from onbeat.cli.job_views import print_job, print_jobs
from onbeat.cli.moments import in_zone, zone_of
from onbeat.cli.pauses import ReplayOption, pause_request, resume_request
from onbeat.cli.terminal import clean, print_fields, print_json, print_table

app = typer.Typer(help="Define jobs, look at them, stop and start them.", no_args_is_help=True)
app.add_typer(bulk_jobs.app, name="bulk")

JobArgument = Annotated[str, typer.Argument(metavar="JOB", help="The job's id (job_…) or its key.")]
NameOption = Annotated[str | None, typer.Option("--name", help="What people call it.")]
CronOption = Annotated[list[str] | None, typer.Option("--cron", metavar="EXPR", help="Cron schedule; may be repeated.")]
ZoneOption = Annotated[
    str | None,
    typer.Option("--tz", metavar="ZONE", help="Zone of --cron, --rrule and a local --at. Default: UTC."),
]
EveryOption = Annotated[
    list[str] | None, typer.Option("--every", metavar="LENGTH", help="Interval, such as 5m or 1h30m; may be repeated.")
]
AfterFinishOption = Annotated[
    str | None,
    typer.Option("--every-after-finish", metavar="LENGTH", help="So long after each run has ended; the only schedule."),
]
RruleOption = Annotated[
    list[str] | None, typer.Option("--rrule", metavar="RULE", help="Recurrence rule of RFC 5545; may be repeated.")
]
DtstartOption = Annotated[
    str | None,
    typer.Option("--dtstart", metavar="MOMENT", help="Where --rrule begins: local time, or RFC 3339."),
]
AtOption = Annotated[list[str] | None, typer.Option("--at", metavar="RFC3339", help="One instant; may be repeated.")]
StartAtOption = Annotated[
    str | None,
    typer.Option("--start-at", metavar="MOMENT", help="Nothing fires before this: RFC 3339, or local time in --tz."),
]
EndAtOption = Annotated[
    str | None, typer.Option("--end-at", metavar="MOMENT", help="Nothing fires after this: like --start-at.")
]
MaxFiresOption = Annotated[
    int | None,
    typer.Option("--max-fires", min=1, help="So many instants of the schedule, from --start-at or its creation on."),
]
DstGapOption = Annotated[
    Literal["shift", "skip"] | None,
    typer.Option("--dst-gap", help="What local times of --cron do that the clock leaves out."),
]
DstOverlapOption = Annotated[
    Literal["first", "second", "both"] | None,
    typer.Option("--dst-overlap", help="Which of two equal local times of --cron fires."),
]
ExcludeOption = Annotated[
    list[str] | None, typer.Option("--exclude", metavar="CALENDAR", help="Not on its days; may be repeated.")
]
OnlyOption = Annotated[
    list[str] | None, typer.Option("--only", metavar="CALENDAR", help="Only on its days; may be repeated.")
]
RollOption = Annotated[
    Literal["skip", "next_business_day", "previous_business_day"] | None,
    typer.Option("--roll", help="What becomes of an instant that calendars keep out. Default: skip."),
]
UrlOption = Annotated[str | None, typer.Option("--url", help="The webhook to call.")]
MethodOption = Annotated[str | None, typer.Option("--method", help="HTTP method. Default: POST.")]
HeaderOption = Annotated[
    list[str] | None, typer.Option("--header", metavar="NAME:VALUE", help="A header of the request; may be repeated.")
]
BodyOption = Annotated[str | None, typer.Option("--body", help="The request's body, sent as written.")]
PayloadOption = Annotated[str | None, typer.Option("--payload", metavar="JSON", help="Your data in the envelope.")]
QueueOption = Annotated[str | None, typer.Option("--queue", help="In place of --url: a queue for your own workers.")]
TagOption = Annotated[list[str] | None, typer.Option("--tag", help="A tag; may be repeated.")]
GraceOption = Annotated[str | None, typer.Option("--grace", metavar="LENGTH", help="How late is still on time.")]
TimeoutOption = Annotated[str | None, typer.Option("--timeout", metavar="LENGTH", help="Limit of one attempt.")]
SpreadOption = Annotated[
    str | None,
    typer.Option("--spread", metavar="LENGTH", help="All fires start later by one length below this, the job's own."),
]
JitterOption = Annotated[
    str | None, typer.Option("--jitter", metavar="LENGTH", help="Each fire starts later by a length below this.")
]
OverlapOption = Annotated[
    Literal["queue", "skip", "allow", "replace"] | None,
    typer.Option("--overlap", help="What a fire does while a run is going on."),
]

PriorityOption = Annotated[
    int | None, typer.Option("--priority", min=0, max=9, help="Of runs that are ready, higher ones start first.")
]


app.command("backfill")(backfill_job)


@app.command("list")
def list_jobs(
    state: Annotated[str | None, typer.Option(help="active, paused, completed or error.")] = None,
    tag: Annotated[str | None, typer.Option(help="Only with this tag.")] = None,
    text: Annotated[str | None, typer.Option(help="Only with this in the name or key.")] = None,
    limit: LimitOption = 50,
    cursor: CursorOption = None,
    server: ServerOption = DEFAULT_SERVER,
    as_json: JsonOption = False,
) -> None:
    """Jobs, newest first."""
    with connect(server) as api:
        page = api.find_jobs(state=state, tag=tag, text=text, limit=limit, cursor=cursor)
    if as_json:
        print_json(page)
    else:
        print_jobs(page)


@app.command("get")
def get_job(job: JobArgument, server: ServerOption = DEFAULT_SERVER, as_json: JsonOption = False) -> None:
    """One job, with everything that decides when it fires."""
    with connect(server) as api:
        _show(api.get_job(job), as_json)


@app.command("create")
def create_job(
    name: NameOption = None,
    key: Annotated[str | None, typer.Option("--key", help="A slug of your own, unique: for scripts.")] = None,
    cron: CronOption = None,
    tz: ZoneOption = None,
    every: EveryOption = None,
    at: AtOption = None,
    every_after_finish: AfterFinishOption = None,
    rrule: RruleOption = None,
    dtstart: DtstartOption = None,
    start_at: StartAtOption = None,
    end_at: EndAtOption = None,
    max_fires: MaxFiresOption = None,
    dst_gap: DstGapOption = None,
    dst_overlap: DstOverlapOption = None,
    exclude: ExcludeOption = None,
    only: OnlyOption = None,
    roll: RollOption = None,
    url: UrlOption = None,
    method: MethodOption = None,
    header: HeaderOption = None,
    body: BodyOption = None,
    payload: PayloadOption = None,
    queue: QueueOption = None,
    tag: TagOption = None,
    grace: GraceOption = None,
    timeout: TimeoutOption = None,
    overlap: OverlapOption = None,
    spread: SpreadOption = None,
    jitter: JitterOption = None,
    priority: PriorityOption = None,
    from_file: Annotated[
        Path | None,
        typer.Option("--from-file", metavar="FILE", help="Many: one job as JSON per line; - is standard input."),
    ] = None,
    server: ServerOption = DEFAULT_SERVER,
    as_json: JsonOption = False,
) -> None:
    """Define a job, or many at once with --from-file."""
    from onbeat.cli import job_bodies

    if from_file is not None:
        _create_from_file(from_file, server, as_json)
        return
    job = job_bodies.job_body(
        name=name,
        tags=tag,
        schedules=job_bodies.schedules(
            cron=cron,
            every=every,
            at=at,
            after_finish=every_after_finish,
            rrule=rrule,
            dtstart=dtstart,
            bounds={"start_at": start_at, "end_at": end_at, "max_fires": max_fires},
            dst={"dst_gap": dst_gap, "dst_overlap": dst_overlap},
            calendars=job_bodies.calendars(exclude=exclude, only=only, roll=roll),
        ),
        timezone=tz,
        target=job_bodies.target(url=url, method=method, headers=header, body=body, payload=payload, queue=queue),
        grace=grace,
        timeout=timeout,
        overlap=overlap,
        spread=spread,
        jitter=jitter,
        priority=priority,
    )
    job_bodies.check_new_job(job)
    if key is not None:
        job["key"] = key
    job.setdefault("name", key or url or queue)
    with connect(server) as api:
        _show(api.create_job(job), as_json)


@app.command("update")
def update_job(
    job: JobArgument,
    name: NameOption = None,
    cron: CronOption = None,
    tz: ZoneOption = None,
    every: EveryOption = None,
    at: AtOption = None,
    every_after_finish: AfterFinishOption = None,
    rrule: RruleOption = None,
    dtstart: DtstartOption = None,
    start_at: StartAtOption = None,
    end_at: EndAtOption = None,
    max_fires: MaxFiresOption = None,
    dst_gap: DstGapOption = None,
    dst_overlap: DstOverlapOption = None,
    exclude: ExcludeOption = None,
    only: OnlyOption = None,
    roll: RollOption = None,
    url: UrlOption = None,
    method: MethodOption = None,
    header: HeaderOption = None,
    body: BodyOption = None,
    payload: PayloadOption = None,
    queue: QueueOption = None,
    tag: TagOption = None,
    grace: GraceOption = None,
    timeout: TimeoutOption = None,
    overlap: OverlapOption = None,
    spread: SpreadOption = None,
    jitter: JitterOption = None,
    priority: PriorityOption = None,
    if_version: Annotated[int | None, typer.Option("--if-version", help="Only if it is still at this version.")] = None,
    server: ServerOption = DEFAULT_SERVER,
    as_json: JsonOption = False,
) -> None:
    """Change what you name and leave the rest. Schedules and tags are replaced as a whole."""
    from onbeat.cli import job_bodies

    changes = job_bodies.job_body(
        name=name,
        tags=tag,
        schedules=job_bodies.schedules(
            cron=cron,
            every=every,
            at=at,
            after_finish=every_after_finish,
            rrule=rrule,
            dtstart=dtstart,
            bounds={"start_at": start_at, "end_at": end_at, "max_fires": max_fires},
            dst={"dst_gap": dst_gap, "dst_overlap": dst_overlap},
            calendars=job_bodies.calendars(exclude=exclude, only=only, roll=roll),
        ),
        timezone=tz,
        target=job_bodies.target(url=url, method=method, headers=header, body=body, payload=payload, queue=queue),
        grace=grace,
        timeout=timeout,
        overlap=overlap,
        spread=spread,
        jitter=jitter,
        priority=priority,
    )
    job_bodies.check_changes(changes)
    if "target" in changes:
        changes["target"] = job_bodies.with_exclusions(changes["target"])
    with connect(server) as api:
        _show(api.update_job(job, changes, if_version=if_version), as_json)


@app.command("delete")
def delete_job(
    job: JobArgument,
    cancel: Annotated[bool, typer.Option("--cancel", help="Also stop what runs.")] = False,
    server: ServerOption = DEFAULT_SERVER,
    as_json: JsonOption = False,
) -> None:
    """Delete a job. What waits is cancelled, what runs may finish, the history stays."""
    with connect(server) as api:
        api.delete_job(job, running="cancel" if cancel else "finish")
    if as_json:
        print_json({"deleted": job})
    else:
        print_fields([("deleted", job)])


@app.command("pause")
def pause_job(
    job: JobArgument,
    note: Annotated[str | None, typer.Option(help="Why, for whoever finds it paused.")] = None,
    until: Annotated[str | None, typer.Option(metavar="RFC3339", help="When it ends by itself.")] = None,
    cancel: Annotated[bool, typer.Option("--cancel", help="Also cancel what waits and stop what runs.")] = False,
    server: ServerOption = DEFAULT_SERVER,
    as_json: JsonOption = False,
) -> None:
    """No new run and no new attempt from now on. Tells when the last side effect can have begun."""
    request = pause_request(note=note, until=until, cancel=cancel)
    with connect(server) as api:
        paused = api.pause_job(job, request)
    if as_json:
        print_json(paused)
        return
    print_job(paused["job"])
    print_fields([("last possible side effect", paused["last_possible_side_effect_at"])])


@app.command("resume")
def resume_job(
    job: JobArgument,
    replay: ReplayOption = "none",
    server: ServerOption = DEFAULT_SERVER,
    as_json: JsonOption = False,
) -> None:
    """Go on at the next planned instant. For those of the pause there is `jobs backfill`."""
    with connect(server) as api:
        resumed = api.resume_job(job, resume_request(replay))
    if as_json:
        print_json(resumed)
        return
    replayed = resumed.pop("replayed", None)
    print_job(resumed)
    if replayed is not None:
        print_fields([("runs brought back", replayed["count"]), ("failed runs left", replayed["left"])])


@app.command("trigger")
def trigger_job(
    job: JobArgument,
    payload: Annotated[str | None, typer.Option(metavar="JSON", help="In place of the job's own payload.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Run beside everything, past the overlap rule.")] = False,
    server: ServerOption = DEFAULT_SERVER,
    as_json: JsonOption = False,
) -> None:
    """Run it now, beside its schedule."""
    from onbeat.cli.job_bodies import parse_json
    from onbeat.cli.run_views import print_run

    request: dict[str, Any] = {} if payload is None else {"payload": parse_json(payload, field="--payload")}
    if force:
        request["force"] = True
    with connect(server) as api:
        run = api.trigger_job(job, request)
        if as_json:
            print_json(run)
        else:
            print_run(run, timezone=zone_of(api.get_job(job)))
            if run.get("hint"):
                print(f"note: {clean(run['hint'])}")


@app.command("next")
def next_of_job(
    job: JobArgument,
    count: Annotated[int, typer.Option("--count", min=1, max=1000, help="How many.")] = 5,
    explain: Annotated[
        bool, typer.Option("--explain", help="Tell what calendars removed or moved on the way, too.")
    ] = False,
    server: ServerOption = DEFAULT_SERVER,
    as_json: JsonOption = False,
) -> None:
    """The planned instants to come."""
    with connect(server) as api:
        answer = api.next_fires(job, count=count, explain=explain)
        if as_json:
            print_json(answer)
            return
        zone = zone_of(api.get_job(job))
    print_table(
        ("local", "UTC"), [(in_zone(fire, zone), fire) for fire in answer["fires"]], empty="Nothing is planned."
    )
    if explain and answer["kept_out"]:
        from onbeat.cli.calendars import print_kept_out

        print_kept_out(answer["kept_out"], zone)


def _show(job: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print_json(job)
    else:
        print_job(job)


def _create_from_file(path: Path, server: str, as_json: bool) -> None:
    from onbeat.cli.job_files import create_many, read_jobs

    jobs = read_jobs(path)
    with connect(server) as api:
        refused = create_many(api, jobs, as_json=as_json)
    if refused:
        raise typer.Exit(1)
