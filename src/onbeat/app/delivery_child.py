"""A delivery process: a child of a node that sends webhooks, and nothing else. Started by app/delivery_processes.py.

It never sees the database, and lives as long as its node: signals of a service manager, which reach all processes of a
node, are the node's to answer, and once the node is gone it leaves at once, as if both had been one process.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from importlib.metadata import version

import structlog
import uvloop

from onbeat.app.deliverer import Deliverer
from onbeat.app.egress import egress_rules
from onbeat.app.process import EXIT_GAVE_BACK, EXIT_OK, spare_the_collector
from onbeat.client.frames import Frames
from onbeat.client.pipe import Begin, Cancelled, Doubted, Drain, PipeLink, Word
from onbeat.clock import DatabaseClock
from onbeat.config import Settings
from onbeat.loops.maintenance import clock_loop
from onbeat.loops.supervisor import Supervisor
from onbeat.telemetry import Metrics, configure_logging

log = structlog.get_logger(__name__)

EXIT_NODE_GONE = 71
"""The node hung up without a word (EX_OSERR). Leases end by themselves, as those of the node do."""

EXIT_OTHER_VERSION = 78
"""Another onbeat was installed since the node was started (EX_CONFIG): the two would misread each other."""

CLAIM_WAIT_S = 20.0
"""The node answers all claims at once when it stops, so this only bounds what an idle pipe carries."""


class _Child:
    """One delivery process, from the node's first word to its last."""

    def __init__(self, frames: Frames[Word]) -> None:
        self._link = PipeLink(frames)
        self._begin: asyncio.Future[Begin] = asyncio.get_running_loop().create_future()
        self._stop = asyncio.Event()
        self._deliverer: Deliverer | None = None

    async def run(self) -> int:
        """Answer: the exit code."""
        listening = asyncio.create_task(self._listen())
        begin = await self._begin
        settings = Settings.model_validate_json(begin.settings)
        configure_logging(level=settings.log_level)
        clock = await DatabaseClock.start(self._link.read_clock)
        deliverer = self._deliverer = Deliverer(
            self._link,
            settings=settings,
            egress=egress_rules(settings),
            clock=clock,
            metrics=Metrics(),  # the node counts what is reported to it
            capacity=begin.capacity,
            claim_wait_s=CLAIM_WAIT_S,
        )
        supervisor = Supervisor(on_failure=self._stop.set)
        supervisor.start([*deliverer.loops, clock_loop(clock)])
        await self._stop.wait()
        is_drained = await deliverer.drain()
        await deliverer.close()
        await supervisor.stop()
        listening.cancel()
        return EXIT_OK if is_drained else EXIT_GAVE_BACK

    async def _listen(self) -> None:
        try:
            await self._link.listen(self._hear)
        except Exception as error:  # deaf, it would hold its runs for ever
            log.critical("node_not_understood", exc_info=error)
        os._exit(EXIT_NODE_GONE)

    def _hear(self, word: Begin | Cancelled | Doubted | Drain) -> None:
        match word:
            case Begin():
                self._begin.set_result(word)
            case Drain():
                self._stop.set()
            case Cancelled(key):
                if self._deliverer is not None:
                    self._deliverer.cancel(key)
            case Doubted(key):
                if self._deliverer is not None:
                    self._deliverer.doubt(key)


async def _deliver(connected: socket.socket) -> int:
    frames: Frames[Word] = await Frames.open(connected, reads=Word)
    return await _Child(frames).run()


def main() -> None:
    """`python -m onbeat.app.delivery_child FD VERSION`: the number of the socket to the node that this process
    inherits, and which onbeat the node is.
    """
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if sys.argv[2] != (installed := version("onbeat")):
        log.critical("node_of_another_version", node=sys.argv[2], installed=installed, remedy="start the node again")
        sys.exit(EXIT_OTHER_VERSION)
    spare_the_collector()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        sys.exit(runner.run(_deliver(socket.socket(fileno=int(sys.argv[1])))))


if __name__ == "__main__":
    main()
