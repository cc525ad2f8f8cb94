"""Connects sockets: addresses in, the first socket that stands out. Judges nothing; what it is given is dialled."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, ip_address
from itertools import zip_longest

from onbeat.delivery.failure import DialFailed
from onbeat.domain.egress import Address
from onbeat.domain.outcome import OutcomeKind


async def connect_first(addresses: Sequence[Address], *, port: int, limit_s: float) -> socket.socket:
    """A socket to the first address that accepts one, each tried for `limit_s`. Raises DialFailed, of the last one."""
    failure = DialFailed(OutcomeKind.REFUSED, "the host could not be reached")
    for address in addresses:
        try:
            return await connect(address, port=port, limit_s=limit_s)
        except DialFailed as error:
            failure = error
    raise failure


async def connect(address: Address, *, port: int, limit_s: float | None) -> socket.socket:
    """A socket to this address, whose peer is this address. Raises DialFailed."""
    try:
        family = socket.AF_INET if isinstance(address, IPv4Address) else socket.AF_INET6
        connecting = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise DialFailed(OutcomeKind.REFUSED, _describe(error)) from None
    try:
        connecting.setblocking(False)
        connecting.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        async with asyncio.timeout(limit_s):
            await asyncio.get_running_loop().sock_connect(connecting, (str(address), port))
        if ip_address(connecting.getpeername()[0]) != address:
            raise DialFailed(OutcomeKind.BLOCKED, "the connection led to another address")
    except TimeoutError:
        connecting.close()
        raise DialFailed(OutcomeKind.TIMEOUT_BEFORE_SEND, "the host did not accept a connection in time") from None
    except OSError as error:
        connecting.close()
        raise DialFailed(OutcomeKind.REFUSED, _describe(error)) from None
    except BaseException:
        connecting.close()
        raise
    return connecting


def alternate_families(addresses: Sequence[Address]) -> list[Address]:
    """The order of the answer, with the families by turns (RFC 8305 §4), beginning with the preferred one."""
    first_kind = type(addresses[0])
    preferred = [address for address in addresses if isinstance(address, first_kind)]
    others = [address for address in addresses if not isinstance(address, first_kind)]
    turns = zip_longest(preferred, others)
    return [address for turn in turns for address in turn if isinstance(address, IPv4Address | IPv6Address)]


def _describe(error: OSError) -> str:
    match error.errno:
        case errno.ECONNREFUSED:
            return "the host refused the connection"
        case errno.ECONNRESET:
            return "the host reset the connection"
        case errno.ENETUNREACH | errno.EHOSTUNREACH | errno.EADDRNOTAVAIL | errno.EAFNOSUPPORT:
            return "there is no route to the host"
        case errno.EMFILE | errno.ENFILE:
            return "the worker has no free file descriptors"
        case _:
            return "the host could not be reached"
