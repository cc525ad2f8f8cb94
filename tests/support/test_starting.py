"""A process that is forked is what `python ARGUMENT…` is: looked at from inside, killed and waited for from outside."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from tests.support.starting import Process, Start, start_fork, start_interpreter

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere nothing is forked")

ABOUT_ITSELF = """
import gc, json, os, random, resource, signal, sys, threading, time

print(json.dumps({
    "arguments": sys.argv[1:],
    "name": __name__,
    "is_main": sys.modules["__main__"].__dict__ is globals(),
    "first_path": sys.path[0],
    "directory": os.getcwd(),
    "environment": dict(os.environ),
    "descriptors": sorted(os.listdir("/proc/self/fd")),
    "threads": [threading.active_count(), len(os.listdir("/proc/self/task"))],
    "signals": {number.name: str(signal.getsignal(number)) for number in signal.Signals},
    "blocked": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
    "limits": [resource.getrlimit(number) for number in (resource.RLIMIT_NOFILE, resource.RLIMIT_CORE)],
    "collects": gc.isenabled(),
    "recursion": sys.getrecursionlimit(),
    "zone": time.tzname,
}), flush=True)
print("to standard error", file=sys.stderr)
sys.exit(7)
"""


async def say(script: Path, start: Start, *arguments: str, env: dict[str, str]) -> tuple[int, str, str]:
    """Exit code, and both lines."""
    with tempfile.TemporaryFile() as output:
        process = await start([str(script), *arguments], output=output, env=env, cwd=script.parent)
        code = await process.wait()
        output.seek(0)
        first, second = output.read().decode().splitlines()
    return code, first, second


async def start(script: Path, text: str) -> Process:
    script.write_text(text)
    with tempfile.TemporaryFile() as output:
        return await start_fork([str(script)], output=output, env=os.environ)


async def test_it_finds_what_a_process_of_the_interpreter_finds(tmp_path: Path) -> None:
    script = tmp_path / "about.py"
    script.write_text(ABOUT_ITSELF)
    env = {"PATH": os.environ["PATH"], "LC_ALL": "C.UTF-8", "TZ": "Asia/Tokyo", "ONBEAT_ANYTHING": "ü"}
    told: list[Any] = []
    for way in (start_interpreter, start_fork):
        code, first, second = await say(script, way, "one", "two words", env=env)
        assert (code, second) == (7, "to standard error")
        told.append(json.loads(first))
    assert told[1] == told[0]


async def test_random_numbers_are_its_own(tmp_path: Path) -> None:
    script = tmp_path / "random_numbers.py"
    script.write_text("import random, uuid; print(random.random()); print(uuid.uuid4())")
    _, *one = await say(script, start_fork, env=dict(os.environ))
    _, *other = await say(script, start_fork, env=dict(os.environ))
    assert not set(one) & set(other)


async def test_a_module_runs_as_main_with_its_arguments() -> None:
    with tempfile.TemporaryFile() as output:
        process = await start_fork(["-m", "onbeat", "jobs", "list", "--nonsense"], output=output, env=os.environ)
        assert await process.wait() == 2
        output.seek(0)
        assert b"--nonsense" in output.read()


async def test_it_is_killed_and_stopped_like_any_other(tmp_path: Path) -> None:
    process = await start(tmp_path / "sleeps.py", "import time; time.sleep(600)")
    process.send_signal(signal.SIGSTOP)
    async with asyncio.timeout(30):
        while _state(process.pid) != "T":
            await asyncio.sleep(0.01)
    assert process.returncode is None
    process.kill()
    assert await process.wait() == process.returncode == -signal.SIGKILL
    async with asyncio.timeout(30):
        while _state(process.pid) is not None:
            await asyncio.sleep(0.01)


async def test_a_signal_with_its_default_action_ends_it(tmp_path: Path) -> None:
    process = await start(tmp_path / "sleeps.py", "import time; time.sleep(600)")
    process.send_signal(signal.SIGTERM)
    assert await process.wait() == -signal.SIGTERM


async def test_an_exception_is_told_and_ends_it_with_1(tmp_path: Path) -> None:
    script = tmp_path / "fails.py"
    script.write_text("raise ValueError('no')")
    with tempfile.TemporaryFile() as output:
        process = await start_fork([str(script)], output=output, env=os.environ)
        assert await process.wait() == 1
        output.seek(0)
        assert output.read().decode().splitlines()[-1] == "ValueError: no"


async def test_a_start_that_is_given_up_harms_no_other(tmp_path: Path) -> None:
    sleeps = "import time; time.sleep(600)"
    before = await start(tmp_path / "before.py", sleeps)
    given_up = 0
    while given_up < 5:
        starting = asyncio.create_task(start(tmp_path / "given_up.py", sleeps))
        await asyncio.sleep(0)
        if starting.done():  # it was answered at once
            starting.result().kill()
            continue
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        given_up += 1
    after = await start(tmp_path / "after.py", sleeps)
    for process in (before, after):
        assert process.returncode is None
        process.kill()
        assert await process.wait() == -signal.SIGKILL


async def test_what_a_fork_would_not_read_is_not_asked_of_it(tmp_path: Path) -> None:
    with tempfile.TemporaryFile() as output, pytest.raises(AssertionError, match="PYTHONDEVMODE"):
        await start_fork([str(tmp_path)], output=output, env=os.environ | {"PYTHONDEVMODE": "1"})


@pytest.mark.parametrize("dies", ["os.getpid()", "parent_of(process.pid)"], ids=["test process", "server"])
async def test_it_ends_with_a_test_process_or_a_server_that_is_killed(tmp_path: Path, dies: str) -> None:
    sleeps = tmp_path / "sleeps.py"
    sleeps.write_text("import time; time.sleep(600)")
    killed = tmp_path / "killed.py"
    killed.write_text(f"""
import asyncio, os, signal, sys
from pathlib import Path
from tests.support.starting import start_fork

def parent_of(pid):
    return int(Path(f"/proc/{{pid}}/stat").read_text().rpartition(")")[2].split()[1])

async def main():
    process = await start_fork([{str(sleeps)!r}], output=sys.stdout.buffer, env=os.environ)
    print(process.pid, flush=True)
    os.kill({dies}, signal.SIGKILL)
    await process.wait()

asyncio.run(main())
""")
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    with tempfile.TemporaryFile() as output:
        process = await start_interpreter([str(killed)], output=output, env=env)
        assert await process.wait() == (1 if "parent" in dies else -signal.SIGKILL)
        output.seek(0)
        pid = int(output.readline())
    async with asyncio.timeout(30):
        while _state(pid) not in (None, "Z"):
            await asyncio.sleep(0.01)


def _state(pid: int) -> str | None:
    """One letter. None: there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return None
