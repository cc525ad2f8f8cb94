"""The bare design comes to its end: however few attempts it makes at once, and when its receiver leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from bench.bare_design import _File, _run

ANSWER = b"HTTP/1.1 204 No Content\r\n\r\n"
FIRES = 30
ENDS_WITHIN_S = 20


@pytest.fixture
def file(tmp_path: Path) -> Iterator[_File]:
    file = _File(tmp_path / "bare.sqlite3", jobs=FIRES)
    yield file
    file.close()


async def run(file: _File, *, attempts: int, answer: Callable[[asyncio.StreamWriter], None]) -> int:
    """How many requests came to a receiver that answers so."""
    requests = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal requests
        while await reader.read(65_536):  # one request: the next one waits for its answer
            requests += 1
            answer(writer)

    async with await asyncio.start_server(serve, "127.0.0.1") as server, asyncio.timeout(ENDS_WITHIN_S):
        await _run(file, port=server.sockets[0].getsockname()[1], fires=FIRES, attempts=attempts)
    return requests


@pytest.mark.parametrize("attempts", [1, 7, 2_000])
async def test_each_fire_is_delivered_once_however_few_at_a_time(file: _File, attempts: int) -> None:
    assert await run(file, attempts=attempts, answer=lambda writer: writer.write(ANSWER)) == FIRES


async def test_a_receiver_that_leaves_ends_it(file: _File) -> None:
    with pytest.raises(ConnectionError):
        await run(file, attempts=7, answer=lambda writer: writer.close())
