"""The PostgreSQL server of a test session leaves nothing behind."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from pathlib import Path

import asyncpg
import pytest

SCRIPT = Path(__file__).with_name("postgres_until_killed.py")
ENDS_WITHIN_S = 60.0

pytestmark = pytest.mark.slow


def is_running(pid: int) -> bool:
    """Zombies, which nobody waits for in a container, have ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize("is_frozen", [False, True])
async def test_a_server_ends_with_a_test_process_that_is_killed(is_frozen: bool) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        str(SCRIPT),
        stdout=asyncio.subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert process.stdout is not None
    directory, url = (await process.stdout.readline()).decode().split()
    server = int((Path(directory) / "data" / "postmaster.pid").read_text().split()[0])
    connection = await asyncpg.connect(url)
    backend = await connection.fetchval("SELECT pg_backend_pid()")
    if is_frozen:
        os.kill(server, signal.SIGSTOP)
    process.kill()
    await process.wait()
    async with asyncio.timeout(ENDS_WITHIN_S):
        while is_running(server) or is_running(backend) or Path(directory).exists():
            await asyncio.sleep(0.05)
    connection.terminate()
