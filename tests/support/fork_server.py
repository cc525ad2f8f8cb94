"""A process that has imported onbeat and becomes others that begin where an import would have ended:
`python fork_server.py DESCRIPTOR`.

The descriptor is a socket on which the test process asks (starting.py). What is forked does what `python ARGUMENT…`
would do, under the same rules: a process with its own environment, directory, session and output, with the signals,
the descriptors and the random numbers of one that has just started. A test asks for that, and that the server has one
thread. Different from a real start: all share what the interpreter chose once, such as the seed of hashes, or was told
by PYTHON… variables.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

IMPORTED = (
    "onbeat.cli.main",
    "onbeat.app.node",
    "onbeat.app.remote_worker",
    "onbeat.client.api",
    "onbeat.services.secret_box",
    "onbeat.store.sqlite.store",
    "onbeat.store.postgres.store",
    "uvloop",
)
LARGEST_REQUEST = 256 * 1024
_SET_PARENT_DEATH_SIGNAL = 1  # linux/prctl.h


class Request(TypedDict):
    """With two descriptors: of its output, and of its `Child.tester`."""

    arguments: list[str]
    environment: dict[str, str]
    directory: str


@dataclass(frozen=True)
class Child:
    """One process and the socket on which the test process hears of it: first its number, then its exit code.

    It stays a zombie until the test process has closed its end: until then its number belongs to nobody else.
    """

    pid: int
    pidfd: int
    tester: socket.socket

    def tell(self, number: int) -> None:
        # Whoever asked may have given up meanwhile. Then its end of the socket is closed, which is seen next.
        with contextlib.suppress(ConnectionError):
            self.tester.send(str(number).encode())

    def tell_exit(self) -> None:
        ended = os.waitid(os.P_PIDFD, self.pidfd, os.WEXITED | os.WNOWAIT)
        assert ended is not None
        self.tell(ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status)

    def end(self) -> None:
        """Nobody waits for it any more."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        self.close()

    def close(self) -> None:
        os.close(self.pidfd)
        self.tester.close()


def fork_when_asked(control: socket.socket) -> list[str]:
    """Returns in each forked process, with its arguments; the server itself ends with the test process."""
    children: list[Child] = []
    told: set[Child] = set()
    server = os.getpid()
    while True:
        running = [child.pidfd for child in children if child not in told]
        testers = [child.tester.fileno() for child in children]
        ready, _, _ = select.select([control.fileno(), *running, *testers], [], [])
        for child in list(children):
            if child.tester.fileno() in ready:
                child.end()
                children.remove(child)
                told.discard(child)
            elif child.pidfd in ready:
                child.tell_exit()
                told.add(child)
        if control.fileno() not in ready:
            continue
        asked, descriptors, _, _ = socket.recv_fds(control, LARGEST_REQUEST, 2)
        if not asked:
            for child in children:
                child.end()
            sys.exit()
        output, tester = descriptors
        pid = os.fork()
        if not pid:
            _end_with(server)
            control.close()
            for child in children:
                child.close()
            os.close(tester)
            return _settle(json.loads(asked), output)
        os.close(output)
        children.append(Child(pid, os.pidfd_open(pid), socket.socket(fileno=tester)))
        children[-1].tell(pid)


def _end_with(server: int) -> None:
    """Whatever it dies of, nothing is left behind."""
    ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)
    if os.getppid() != server:  # it has died before
        os.kill(os.getpid(), signal.SIGKILL)


def _settle(request: Request, output: int) -> list[str]:
    """Be where the request says. Answer: its arguments."""
    os.setsid()
    for standard in (1, 2):
        os.dup2(output, standard)
    os.close(output)
    os.chdir(request["directory"])
    os.environ.clear()
    os.environ.update(request["environment"])
    time.tzset()  # TZ is read once
    return request["arguments"]


def become(arguments: list[str]) -> None:
    """What `python ARGUMENT…` does, for a script and for `-m MODULE`."""
    if arguments[0] == "-m":
        _, module, *rest = arguments
        sys.path[0] = os.getcwd()
        sys.argv = [module, *rest]
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = str(Path(arguments[0]).parent)
        sys.argv = list(arguments)
        runpy.run_path(arguments[0], run_name="__main__")


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    sys.path[0] = os.getcwd()
    for name in IMPORTED:
        importlib.import_module(name)
    # A look at everything imported would copy its pages in each process.
    gc.collect()
    gc.freeze()
    become(fork_when_asked(control))


if __name__ == "__main__":
    main()
