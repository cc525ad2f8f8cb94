"""Ports for servers that the tests start, also those that are stopped and started again on the same one."""

from __future__ import annotations

import itertools
import os
import socket

FIRST, PAST_LAST = 10_000, 32_768
"""Below what systems hand out to outgoing connections. A port from there can be given to any connection of any test
between the moment it was found free and the moment its server listens."""
SHARE = 2_000
"""How many each process of one test run has to itself."""


def _order() -> itertools.cycle[int]:
    """From a place that no other process begins at: two test runs may be on one machine."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    shares = (PAST_LAST - FIRST) // SHARE
    first = FIRST + worker % shares * SHARE
    begin = os.getpid() % SHARE
    return itertools.cycle([first + (begin + step) % SHARE for step in range(SHARE)])


_ports = _order()


def free_port() -> int:
    """A port on loopback that nobody uses now, and that this process gives to nobody else for a long time."""
    for port in itertools.islice(_ports, SHARE):
        with socket.socket() as probe:
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise RuntimeError(f"no port of this process's {SHARE} is free")
