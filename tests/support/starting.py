"""How tests start a process: by the interpreter, or as a fork of one that has imported onbeat.

An import of onbeat costs up to 1.5 seconds of a processor, and the suite starts hundreds of processes. See
fork_server.py for what is the same after a fork and what is not. The interpreter stays where a test is about a start,
about signals' dispositions, arguments or modules; where nodes share a database, so that each has a seed of hashes of
its own; where a host's clock is off, which it must be before the first import; and in benchmarks.
"""

from __future__ import annotations

import asyncio
import atexit
import functools
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Protocol

from tests.support.fork_server import Request

SERVER = Path(__file__).with_name("fork_server.py")
ENDS_WITHIN_S = 30.0


class Process(Protocol):
    """What tests use of an `asyncio.subprocess.Process`."""

    @property
    def pid(self) -> int: ...
    @property
    def returncode(self) -> int | None: ...
    def send_signal(self, signal: int) -> None: ...
    def kill(self) -> None: ...
    async def wait(self) -> int: ...


class Start(Protocol):
    """Starts what `python <arguments>` would, with `output` as standard output and standard error."""

    async def __call__(
        self, arguments: Sequence[str], *, output: IO[bytes], env: Mapping[str, str], cwd: Path | None = None
    ) -> Process: ...


class ForkedProcess:
    """One that was forked."""

    def __init__(self, pid: int, server: socket.socket) -> None:
        self._pid = pid
        self._server = server
        self._exit = asyncio.create_task(self._hear_exit())

    async def _hear_exit(self) -> int:
        with self._server:
            said = await asyncio.get_running_loop().sock_recv(self._server, 64)
            if not said:
                raise RuntimeError("the server of forks has died")
            return int(said)

    @property
    def pid(self) -> int:
        return self._pid

    @property
    def returncode(self) -> int | None:
        return self._exit.result() if self._exit.done() else None

    def send_signal(self, signal: int) -> None:
        # Its number is given to nobody else before its end was heard of.
        if self.returncode is None:
            os.kill(self.pid, signal)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    async def wait(self) -> int:
        return await asyncio.shield(self._exit)


@functools.cache
def _control() -> socket.socket:
    """Of the server of this test process, which ends with it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        server = subprocess.Popen(
            [sys.executable, str(SERVER), str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )

    def end() -> None:
        ours.close()
        server.wait(ENDS_WITHIN_S)

    atexit.register(end)
    return ours


async def start_interpreter(
    arguments: Sequence[str], *, output: IO[bytes], env: Mapping[str, str], cwd: Path | None = None
) -> Process:
    """As an operator does it."""
    return await asyncio.create_subprocess_exec(
        sys.executable, *arguments, stdout=output, stderr=output, env=env, cwd=cwd
    )


async def start_fork(
    arguments: Sequence[str], *, output: IO[bytes], env: Mapping[str, str], cwd: Path | None = None
) -> Process:
    """Without the imports. What it needs is to be had on Linux only; elsewhere the interpreter starts."""
    if sys.platform != "linux":
        return await start_interpreter(arguments, output=output, env=env, cwd=cwd)
    told = {name for name, value in env.items() if name.startswith("PYTHON") and value != os.environ.get(name)}
    assert not told, f"only an interpreter that starts reads {told}"
    request = Request(arguments=list(arguments), environment=dict(env), directory=str(cwd or Path.cwd()))
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.setblocking(False)
    with theirs:
        socket.send_fds(_control(), [json.dumps(request).encode()], [output.fileno(), theirs.fileno()])
    try:
        said = await asyncio.get_running_loop().sock_recv(ours, 64)
        return ForkedProcess(int(said), ours)
    except BaseException:
        ours.close()  # which ends the process
        raise


async def run_fork(*arguments: str) -> bytes:
    """Run it to its end, which must be a good one. Answer: what it wrote."""
    with tempfile.TemporaryFile() as output:
        process = await start_fork(arguments, output=output, env=os.environ)
        code = await process.wait()
        output.seek(0)
        written = output.read()
    assert code == 0, written.decode()
    return written
