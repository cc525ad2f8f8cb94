"""Start lag at fixed rates: from the planned instant to the arrival at the receiver, all in real processes.

    python -m bench.start_lag [--rates 1,100,1000,6000] [--engine sqlite|postgres] [--seconds 20] [--spread 1]

How it is set up says bench/rig.py: N fires a second are N requests that are due in the same moment. With `--spread`
the jobs spread their starts, as those do whose exact second does not matter (`spread_s`), and the lag counts from
there. The limit, measured in the same run: the same N requests, unsigned, written at once to the same receiver by a
bare loop.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from pathlib import Path

from bench.databases import ENGINES
from bench.figures import Figure, Limit, Result, at_most, latencies, percentile
from bench.rig import CONNECTIONS, REQUEST, Load, run_load
from bench.scenario import parser_of, run_alone
from bench.sink import receiving

ASKED = {2_000: {0.5: at_most(25), 0.99: at_most(250)}}
"""Design §8, by rate."""
SHARES = (0.5, 0.99, 1.0)


async def bare_burst(port: int, count: int) -> list[float]:
    """Milliseconds from the start until each answer, ascending."""
    loop = asyncio.get_running_loop()
    done: list[float] = []

    class Bare(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            self.transport, self.left = transport, 0

        def data_received(self, data: bytes) -> None:
            for _ in range(data.count(b"HTTP/1.1")):
                done.append((time.perf_counter() - started) * 1e3)
                self.left -= 1
                if self.left > 0:
                    self.transport.write(REQUEST)

    clients = [(await loop.create_connection(Bare, "127.0.0.1", port))[1] for _ in range(min(CONNECTIONS, count))]
    started = time.perf_counter()
    for number, client in enumerate(clients):
        client.left = count // len(clients) + (number < count % len(clients))
        client.transport.write(REQUEST)
    async with asyncio.timeout(30):
        while len(done) < count:
            await asyncio.sleep(0.005)
    for client in clients:
        client.transport.close()
    return sorted(done)


def measure(options: argparse.Namespace) -> Result:
    """One rate after the other, each in fresh processes over fresh data."""
    figures: list[Figure] = []
    receiver = ""
    for rate in map(int, options.rates.split(",")):
        with tempfile.TemporaryDirectory() as folder, receiving(Path(folder)) as sink:
            receiver = sink.program
            burst_ms = asyncio.run(bare_burst(sink.port, rate))
        seen = run_load(
            Load(
                rate=rate,
                seconds=options.seconds,
                engine=options.engine,
                attempts=options.attempts,
                spread_s=options.spread,
            )
        )
        figures += latencies(
            f"lag at {rate:,}/s",
            seen.lags_ms,
            shares=SHARES,
            targets=ASKED.get(rate),
            limits={share: Limit("bare burst", percentile(burst_ms, share)) for share in SHARES},
        )
        figures.append(Figure(f"delivered at {rate:,}/s", seen.per_second().value, "fires/s"))
        figures.append(Figure(f"CPU at {rate:,}/s", seen.cost_of_a_fire(), "µs/fire"))
    shape = f"starts spread over {options.spread} s" if options.spread else "all in one moment of each second"
    return Result(
        f"{options.engine}, one node, {shape}, {options.seconds} s at each rate, receiver {receiver}", figures
    )


def main() -> None:
    """Run alone."""
    parser = parser_of(__doc__)
    parser.add_argument("--rates", default="1,100,1000,2000,6000")
    parser.add_argument("--engine", choices=ENGINES, default="sqlite")
    parser.add_argument("--seconds", type=int, default=20, help="of each rate")
    parser.add_argument("--attempts", type=int, default=2_000, help="at once")
    parser.add_argument(
        "--spread", type=int, default=0, help="seconds over which the jobs spread their starts; 0: all in one moment"
    )
    run_alone(parser, measure)


if __name__ == "__main__":
    main()
