"""The proxy of the tests does what it is told to, seen from both of its ends."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field

import pytest
from tests.support.proxy import Proxy, proxying


@dataclass
class Echo:
    """A server that sends everything back and remembers how its connections ended."""

    received: bytearray = field(default_factory=bytearray)
    arrived: asyncio.Condition = field(default_factory=asyncio.Condition)
    ends: list[str] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        end = "reset"
        with contextlib.suppress(ConnectionError):
            while chunk := await reader.read(1_000):
                writer.write(chunk)
                async with self.arrived:
                    self.received += chunk
                    self.arrived.notify_all()
                await writer.drain()
            end = "closed"
        async with self.arrived:
            self.ends.append(end)
            self.arrived.notify_all()
        writer.close()

    async def until(self, *, received: bytes | None = None, ends: list[str] | None = None) -> None:
        async with asyncio.timeout(20), self.arrived:
            await self.arrived.wait_for(
                lambda: (received is None or self.received == received) and (ends is None or self.ends == ends)
            )


@contextlib.asynccontextmanager
async def echoing() -> AsyncIterator[tuple[Echo, Proxy]]:
    echo = Echo()
    server = await asyncio.start_server(echo.serve, "127.0.0.1", 0)
    async with proxying(server.sockets[0].getsockname()[1]) as proxy:
        yield echo, proxy
    server.close()


@contextlib.asynccontextmanager
async def calling(proxy: Proxy) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def arrives(reader: asyncio.StreamReader, expected: bytes) -> bool:
    async with asyncio.timeout(20):
        return await reader.readexactly(len(expected)) == expected


async def stays_silent(reader: asyncio.StreamReader) -> bool:
    """Nothing comes for a moment: neither a byte nor the end."""
    try:
        async with asyncio.timeout(0.2):
            await reader.read(1)
    except TimeoutError:
        return True
    return False


async def test_bytes_pass_both_ways_and_a_close_is_passed_on() -> None:
    async with echoing() as (echo, proxy), calling(proxy) as (reader, writer):
        large = bytes(range(256)) * 4_000
        writer.write(large)
        assert await arrives(reader, large)
        writer.write_eof()
        await echo.until(ends=["closed"])
        assert await reader.read() == b""


async def test_a_stall_moves_nothing_and_ends_nothing_until_it_is_over() -> None:
    async with echoing() as (echo, proxy), calling(proxy) as (reader, writer):
        writer.write(b"before")
        assert await arrives(reader, b"before")
        proxy.stall()
        writer.write(b" meanwhile")
        assert await stays_silent(reader)
        assert (bytes(echo.received), echo.ends, proxy.open_count) == (b"before", [], 1)
        proxy.resume()
        assert await arrives(reader, b" meanwhile")


async def test_a_stall_of_the_answers_lets_the_requests_through() -> None:
    async with echoing() as (echo, proxy), calling(proxy) as (reader, writer):
        proxy.to_client.stall()
        writer.write(b"asked")
        await echo.until(received=b"asked")
        assert await stays_silent(reader)
        proxy.to_client.resume()
        assert await arrives(reader, b"asked")


async def test_a_connection_made_during_a_stall_waits_too() -> None:
    async with echoing() as (echo, proxy):
        proxy.stall()
        async with calling(proxy) as (reader, writer):
            writer.write(b"late")
            assert await stays_silent(reader)
            assert echo.received == b""
            proxy.resume()
            assert await arrives(reader, b"late")


@pytest.mark.parametrize("is_stalled", [False, True])
async def test_a_cut_resets_both_ends_of_every_connection(is_stalled: bool) -> None:
    async with echoing() as (echo, proxy), calling(proxy) as (first, writer), calling(proxy) as (second, other):
        for end in (writer, other):
            end.write(b"x")
        assert await arrives(first, b"x")
        assert await arrives(second, b"x")
        if is_stalled:
            proxy.stall()
        assert proxy.cut() == 2
        for reader in (first, second):
            with pytest.raises(ConnectionResetError):
                async with asyncio.timeout(20):
                    await reader.read(1)
        await echo.until(ends=["reset", "reset"])
        assert proxy.open_count == 0
        proxy.resume()
        async with calling(proxy) as (again, writer_again):
            writer_again.write(b"again")
            assert await arrives(again, b"again")


async def test_a_reset_of_the_server_reaches_the_client() -> None:
    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(1)
        writer.transport.abort()  # with a byte unread, the kernel answers RST

    server = await asyncio.start_server(reset, "127.0.0.1", 0)
    async with proxying(server.sockets[0].getsockname()[1]) as proxy, calling(proxy) as (reader, writer):
        writer.write(b"xy" * 100_000)
        async with asyncio.timeout(20):
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
    server.close()


async def test_a_delay_keeps_the_order_and_is_never_cut_short() -> None:
    async with echoing() as (echo, proxy), calling(proxy) as (reader, writer):
        proxy.to_server.delay_s = 0.3
        loop = asyncio.get_running_loop()
        began = loop.time()
        for number in range(10):
            writer.write(b"%d" % number)
            await writer.drain()
            await asyncio.sleep(0.001)
        assert await arrives(reader, b"0123456789")
        assert loop.time() - began >= 0.3
        assert echo.received == b"0123456789"


async def test_refusing_cuts_new_connections_and_leaves_open_ones_alone() -> None:
    async with echoing() as (_, proxy), calling(proxy) as (reader, writer):
        writer.write(b"x")
        assert await arrives(reader, b"x")
        proxy.is_refusing = True
        with pytest.raises(ConnectionResetError):
            async with calling(proxy) as (refused, _):
                await refused.read(1)
        writer.write(b"y")
        assert await arrives(reader, b"y")


async def test_nobody_behind_it_is_a_reset() -> None:
    async with proxying(9) as proxy, calling(proxy) as (reader, _):
        with pytest.raises(ConnectionResetError):
            await reader.read(1)
