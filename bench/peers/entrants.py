"""Who takes part, and how each is set up."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path

import asyncpg
from tests.support.fleet import LOOPBACK
from tests.support.ports import free_port
from tests.support.postgres import MASTER_KEY

from bench.databases import fresh_place
from bench.many_jobs import JobShape, create_jobs
from bench.measures import cpu_s_of_server
from bench.peers.contest import Peer, Running, Work
from bench.peers.environment import ADAPTERS, node_modules, python_of_peers
from bench.peers.services import CronServer, Service, kill_group, kill_server, nothing, postgres, redis, sqlite_file
from onbeat.domain.model import SECOND_US

NO_HTTP = "no HTTP delivery of its own (the job calls with {client}), no signature"
DAY_S = 86_400


@dataclass(slots=True)
class Processes:
    """Commands that are a peer's processes, each in a group of its own. Implements contest.Running."""

    commands: list[list[str]]
    environment: dict[str, str]
    folder: Path
    service_cpu_s: Callable[[], float]
    _running: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def start(self) -> None:
        self._running = [
            subprocess.Popen(
                command, env=os.environ | self.environment, cwd=self.folder, start_new_session=True,
                stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )
            for command in self.commands
        ]  # fmt: skip

    def kill(self) -> None:
        for process in self._running:
            kill_group(process)

    def stop(self) -> None:
        for process in self._running:
            if process.poll() is None:
                process.terminate()
        for process in self._running:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(15)
            kill_group(process)

    def pids(self) -> list[int]:
        return [process.pid for process in self._running]


@dataclass(frozen=True, slots=True)
class Adapted:
    """A peer in another environment: a script that writes the jobs, and the processes that do them."""

    name: str
    settings: str
    lacks: str
    service: Callable[[Path], AbstractContextManager[Service]]
    prepare: Callable[[], list[str]] | None
    """None: nothing is written before its processes run."""
    commands: Callable[[Path], list[list[str]]]

    @contextlib.contextmanager
    def open(self, work: Work, folder: Path) -> Iterator[Running]:
        commands = self.commands(folder)
        with self.service(folder) as service:
            environment = {
                "WORK_URL": work.url,
                "WORK_JOBS": str(work.jobs),
                "WORK_DUE_AT": str(work.due_at_s),
                "WORK_STORE": service.store,
                "PYTHONPATH": str(ADAPTERS),
            }
            if self.prepare is not None:
                command = self.prepare()
                environment |= {"WORK_MODULES": str(node_modules())} if command[0] == "node" else {}
                subprocess.run(command, check=True, env=os.environ | environment, cwd=folder)
            yield Processes(commands, environment, folder, service.cpu_s)


def _script(name: str, *arguments: str) -> list[str]:
    return [str(python_of_peers()), "-c", f"import {name}", *arguments]


def _celery(*arguments: str) -> list[str]:
    return [str(python_of_peers()), "-m", "celery", "-A", "celery_jobs", *arguments, "--loglevel", "ERROR"]


@dataclass(frozen=True, slots=True)
class Onbeat:
    """One `onbeat serve`."""

    engine: str
    lacks: str = ""

    @property
    def name(self) -> str:
        return f"onbeat, {'SQLite' if self.engine == 'sqlite' else 'PostgreSQL'}"

    @property
    def settings(self) -> str:
        durable = "synchronous=FULL" if self.engine == "sqlite" else "fsync, synchronous_commit=on"
        return f"one process, 2,000 attempts at once, leases of 30 s; {durable}"

    @contextlib.contextmanager
    def open(self, work: Work, folder: Path) -> Iterator[Running]:
        with fresh_place(self.engine) as place:
            shape = JobShape(work.jobs, work.jobs, work.url, every_s=DAY_S)
            create_jobs(place.data, shape, first_at=work.due_at_s * SECOND_US)
            command = [sys.executable, "-m", "onbeat", "serve", "--data", place.data, "--port", str(free_port())]
            settings = LOOPBACK | {
                "ONBEAT_MASTER_KEY": MASTER_KEY, "ONBEAT_WORKERS": "2000", "ONBEAT_LOG_LEVEL": "error",
            }  # fmt: skip
            yield Processes([command], settings, folder, place.server_cpu_s)


@dataclass(slots=True)
class CronRunning:
    """The server is both: scheduler and database. Implements contest.Running."""

    server: CronServer
    process: subprocess.Popen[bytes]

    def start(self) -> None:
        if self.process.poll() is not None:
            self.process = self.server.start()

    def kill(self) -> None:
        kill_server(self.process)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)  # does not wait for those who are connected
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(30)
        kill_server(self.process)

    def pids(self) -> list[int]:
        return []

    def service_cpu_s(self) -> float:
        return cpu_s_of_server(self.process.pid)


@dataclass(frozen=True, slots=True)
class PgCron:
    """A cron job for each fire; as pg_cron runs SQL only, each starts curl by COPY TO PROGRAM."""

    name: str = "pg_cron"
    settings: str = "PostgreSQL 15, cron.max_running_jobs=32 in background workers; fsync, synchronous_commit=on"
    lacks: str = "minutes are the finest grain; runs SQL, so the job starts curl as a superuser; no retries"

    @contextlib.contextmanager
    def open(self, work: Work, folder: Path) -> Iterator[Running]:
        own = folder / "cron"
        own.mkdir(mode=0o755)
        server = CronServer(own)
        running = CronRunning(server, server.start())
        try:
            asyncio.run(self._write(server.url, work))
            yield running
        finally:
            running.stop()

    async def _write(self, url: str, work: Work) -> None:
        connection = await asyncpg.connect(url)
        await connection.execute("CREATE EXTENSION pg_cron")
        minutes = time.strftime("%M %H * * *", time.gmtime(work.due_at_s))
        planned_at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(work.due_at_s))
        headers = f"-H webhook-id:job-%s -H onbeat-scheduled-at:{planned_at}"
        curl = f"curl -s -o /dev/null {headers} --data-binary @- {work.url}"
        call = f"COPY (SELECT repeat('x', 200)) TO PROGRAM '{curl}'"
        await connection.executemany(
            "SELECT cron.schedule($1, $2, $3)",
            [(f"job-{number}", minutes, call % number) for number in range(work.jobs)],
        )
        await connection.close()


ENTRANTS: tuple[Peer, ...] = (
    Onbeat("sqlite"),
    Onbeat("postgres"),
    Adapted(
        "APScheduler 3, memory",
        "asyncio scheduler and executor on uvloop; nothing is durable",
        NO_HTTP.format(client="aiohttp") + ", no retries; a fire that was due while it was down is not made up for",
        nothing,
        None,
        lambda _folder: [_script("apscheduler_jobs")],
    ),
    Adapted(
        "APScheduler 3, SQLAlchemy",
        "the same over a SQLite file with SQLite's defaults (synchronous=FULL)",
        NO_HTTP.format(client="aiohttp") + ", no retries; a job is moved on in the store when it begins",
        sqlite_file,
        lambda: _script("apscheduler_jobs", "prepare"),
        lambda _folder: [_script("apscheduler_jobs")],
    ),
    Adapted(
        "Celery beat, Redis",
        "beat and one gevent worker (100), acks_late, visibility timeout 30 s; appendonly, appendfsync always",
        NO_HTTP.format(client="urllib3") + "; beat must run once only",
        redis,
        None,
        lambda folder: [
            _celery("beat", "--schedule", str(folder / "beat")),
            _celery("worker", "--pool", "gevent", "--concurrency", "100"),
        ],
    ),
    Adapted(
        "PgQueuer",
        "one process, uvloop, asyncpg pool, batches of 100, heartbeat timeout 30 s; fsync, synchronous_commit=on",
        NO_HTTP.format(client="aiohttp"),
        postgres,
        lambda: _script("pgqueuer_jobs", "prepare"),
        lambda _folder: [_script("pgqueuer_jobs")],
    ),
    Adapted(
        "Procrastinate",
        "one worker (100), uvloop, looks each second, stalled jobs after 30 s; fsync, synchronous_commit=on",
        NO_HTTP.format(client="aiohttp"),
        postgres,
        lambda: _script("procrastinate_jobs", "prepare"),
        lambda _folder: [_script("procrastinate_jobs")],
    ),
    Adapted(
        "BullMQ, Redis",
        "one worker (100) on Node.js, locks of 30 s; appendonly, appendfsync always",
        NO_HTTP.format(client="Node's http agent"),
        redis,
        lambda: ["node", str(ADAPTERS / "bullmq_jobs.mjs"), "prepare"],
        lambda _folder: [["node", str(ADAPTERS / "bullmq_jobs.mjs")]],
    ),
    PgCron(),
)
