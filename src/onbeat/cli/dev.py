"""`onbeat dev`: a scheduler for one person on one machine, with every fire shown as it happens."""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING, Annotated

import typer

from onbeat.cli.offline import NAMESPACE
from onbeat.cli.processes import run_process, settings_from
from onbeat.cli.terminal import clean, console

if TYPE_CHECKING:
    from onbeat.app.node import FireSeen
    from onbeat.cli.demo import Demo
    from onbeat.config import Settings

LOOPBACK = "127.0.0.1"

FIRES_HELD = 50
"""Lines that wait for the terminal: a burst that a person could still read."""

CLOSE_WITHIN_S = 1.0


def dev(
    data: Annotated[str, typer.Option("--data", metavar="FILE", help="The data file; made when it is not there.")] = (
        "./onbeat.sqlite3"
    ),
    port: Annotated[int, typer.Option("--port", min=0, max=65_535, help="Port of the API; 0 takes any.")] = 8623,
    demo: Annotated[bool, typer.Option("--demo", help="Also start a receiver and two jobs that call it.")] = False,
) -> None:
    """Try onbeat here: no API keys, listens on 127.0.0.1 only, webhooks may call this machine and use http."""
    settings = settings_from(data=data, host=LOOPBACK, port=port)
    # The fires are the show; `log_level` brings the log back.
    log_level = settings.log_level if "log_level" in settings.model_fields_set else "warning"
    run_process(_run(settings, with_demo=demo), log_level=log_level)


async def _run(settings: Settings, *, with_demo: bool) -> int:
    from onbeat.app.node import DevMode, serve
    from onbeat.cli.demo import Demo

    secret = await _read_secret(settings)
    demo = Demo(secret) if with_demo else None
    screen = _Screen(settings, secret=secret, demo=demo)
    try:
        return await serve(settings, dev=DevMode(on_fire=screen.show_fire, on_ready=screen.show_start))
    finally:
        screen.close()
        if demo is not None:
            demo.stop()


async def _read_secret(settings: Settings) -> str:
    """What deliveries are signed with; read before the scheduler holds the file."""
    from onbeat.app.services import open_services

    async with open_services(settings) as services:
        await services.secrets.ensure_default(NAMESPACE)
        return await services.secrets.reveal(NAMESPACE, "default") or ""


class _Screen:
    """What `dev` prints. Fires are printed by a thread of its own: a terminal that is slow, or stopped with Ctrl-S,
    must not hold up the scheduler.
    """

    def __init__(self, settings: Settings, *, secret: str, demo: Demo | None) -> None:
        self._settings = settings
        self._secret = secret
        self._demo = demo
        self._console = console()
        self._fires: queue.Queue[FireSeen | None] = queue.Queue(maxsize=FIRES_HELD)
        self._unseen = 0
        self._printer = threading.Thread(target=self._print_fires, name="onbeat-dev-screen", daemon=True)
        self._printer.start()

    def show_fire(self, fire: FireSeen) -> None:
        """Hand one line to the printer. What it cannot keep up with is counted instead."""
        try:
            self._fires.put_nowait(fire)
        except queue.Full:
            self._unseen += 1

    def close(self) -> None:
        """Print what is left."""
        self._fires.put(None)
        self._printer.join(timeout=CLOSE_WITHIN_S)

    def _print_fires(self) -> None:
        while (fire := self._fires.get()) is not None:
            self._print_fire(fire)
            if self._unseen and self._fires.empty():
                unseen, self._unseen = self._unseen, 0
                print(f"… and {unseen} more, too many to show", flush=True)

    def show_start(self, url: str) -> None:
        """Where it listens, what is allowed, and what to try."""
        from onbeat.cli.suggestions import suggestions
        from onbeat.store.database_url import hide_password

        print(f"onbeat dev  {url}  data in {hide_password(self._settings.data)}", flush=True)
        print("No API keys. Listens on this machine only; webhooks may call loopback and private addresses over http.")
        print(f"Verify with onbeat.receiver and this machine's secret: {self._secret}")
        receiver = None
        if self._demo is not None:
            self._demo.create_jobs(url)
            receiver = self._demo.url
            print(f"Demo: a receiver at {receiver} checks every signature; two jobs call it.")
        print("\nTry next, in another terminal:\n")
        for comment, command in suggestions(url, receiver=receiver):
            print(f"  # {comment}\n  {command}\n")
        print("Stop with Ctrl-C. Fires, as they happen:\n", flush=True)

    def _print_fire(self, fire: FireSeen) -> None:
        """One line: when, what, which run, how late, and what became of it."""
        from rich.text import Text

        from onbeat.cli.demo import VALID
        from onbeat.domain.instants import format_instant

        is_good = fire.outcome == "succeeded"
        line = Text()
        line.append(f"{format_instant(fire.scheduled_at)[11:19]}Z  ", style="dim")
        line.append(f"{clean(fire.job_name):<18.18}  {fire.run_id}  ")
        line.append(f"lag {fire.lag_ms:6.1f} ms  ", style="bold")
        line.append(str(fire.status or fire.outcome), style="green" if is_good else "red")
        if fire.attempt > 1 or not is_good:
            line.append(f"  attempt {fire.attempt}")
        if fire.error:
            line.append(f"  {clean(fire.error)}", style="red")
        verdict = self._demo.verdict(fire.run_id) if self._demo is not None else None
        if verdict is not None:
            line.append(f"  {verdict}", style="green" if verdict == VALID else "red")
        self._console.print(line, soft_wrap=True)
        self._console.file.flush()
