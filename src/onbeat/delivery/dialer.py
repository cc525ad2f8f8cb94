"""Opens connections: resolve, judge every address, dial the judged address, TLS on the URL's name.

Owns the order of these steps, which is the egress guard (reliability §3.1 S1, S4):

1. The host is resolved once for this connection. A literal is its own answer.
2. Every address of the answer is judged. One denied address denies all: an attacker's name server decides which of
   the addresses a client tries.
3. The judged addresses themselves are dialled, never the name, so a second answer cannot replace the first. The
   socket's peer is compared with the address that was judged.
4. The next address is tried only after a failure to connect, IPv6 and IPv4 by turns, each with its own short budget.
5. TLS names and verifies the URL's host, whatever address was dialled.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from itertools import zip_longest
from pathlib import Path
from typing import Final, TypeVar

import structlog

from onbeat.delivery.resolver import LookupFailed, Resolver
from onbeat.domain.egress import Address, Deny, EgressRules, vet
from onbeat.domain.outcome import OutcomeKind
from onbeat.domain.webhook_url import WebhookUrl

_MAX_ADDRESSES: Final = 16
_TLS_SHUTDOWN_S: Final = 1.0  # how long a peer may take to say goodbye before its socket is closed anyway

log = structlog.get_logger(__name__)

Opened = TypeVar("Opened", bound=asyncio.Protocol)


class DialFailed(Exception):
    """No connection. Nothing was sent. `reason` is fixed words: it never names an address of ours."""

    def __init__(self, kind: OutcomeKind, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind
        self.reason = reason


@dataclass(frozen=True, slots=True)
class DialLimits:
    """Budgets in seconds, each inside the attempt's own timeout."""

    resolve_s: float = 5.0  # one retransmission of a usual resolver
    connect_s: float = 3.0  # per address, so that a dead IPv6 route leaves time for IPv4
    tls_s: float = 5.0


def create_tls_context(*, ca_file: Path | None = None) -> ssl.SSLContext:
    """TLS 1.2 or newer, certificate and host name verified; `ca_file` adds a private authority to the system's."""
    context = ssl.create_default_context()
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if ca_file is not None:
        context.load_verify_locations(cafile=ca_file)
    return context


class Dialer:
    """Opens one connection at a time for whoever asks; keeps none."""

    def __init__(self, *, rules: EgressRules, resolver: Resolver, tls: ssl.SSLContext, limits: DialLimits) -> None:
        self._rules = rules
        self._resolver = resolver
        self._tls = tls
        self._limits = limits

    async def dial(
        self, url: WebhookUrl, *, protocol: Callable[[socket.socket], Opened], limit_s: float | None = None
    ) -> Opened:
        """A connection to the URL's host, over TLS for https. Raises DialFailed.

        `limit_s` bounds all steps together and takes the place of the budgets of each.
        """
        try:
            async with asyncio.timeout(limit_s):
                resolve_s, tls_s = (self._limits.resolve_s, self._limits.tls_s) if limit_s is None else (None, None)
                addresses = self._judge(url, await self._resolve(url, limit_s=resolve_s))
                connected = await self._connect_first(addresses, port=url.port, total_s=limit_s)
                return await self._speak(connected, url, protocol=protocol, limit_s=tls_s)
        except TimeoutError:
            raise DialFailed(OutcomeKind.TIMEOUT_BEFORE_SEND, "there was no connection in time") from None

    async def _resolve(self, url: WebhookUrl, *, limit_s: float | None) -> Sequence[str]:
        if url.address is not None:
            return (url.host,)
        try:
            async with asyncio.timeout(limit_s):
                return await self._resolver.resolve(url.host, port=url.port)
        except TimeoutError:
            raise DialFailed(OutcomeKind.DNS, "the name server did not answer in time") from None
        except LookupFailed as failure:
            raise DialFailed(OutcomeKind.DNS, str(failure)) from None

    def _judge(self, url: WebhookUrl, answer: Sequence[str]) -> list[Address]:
        for text in answer:
            verdict = vet(text, rules=self._rules)
            if isinstance(verdict, Deny):
                log.warning("egress_denied", host=url.host, address=text, reason=verdict.reason)
                raise DialFailed(OutcomeKind.BLOCKED, "the host's address is not one that webhooks may reach")
        if not answer:
            raise DialFailed(OutcomeKind.DNS, "there is no such host name")
        return _alternate_families([ip_address(text) for text in answer])[:_MAX_ADDRESSES]

    async def _connect_first(self, addresses: Sequence[Address], *, port: int, total_s: float | None) -> socket.socket:
        # Shared by the addresses, so that a dead first one does not use up the others' time.
        limit_s = self._limits.connect_s if total_s is None else total_s / len(addresses)
        failure = DialFailed(OutcomeKind.REFUSED, "the host could not be reached")
        for address in addresses:
            try:
                return await self._connect(address, port=port, limit_s=limit_s)
            except DialFailed as error:
                failure = error
        raise failure

    async def _connect(self, address: Address, *, port: int, limit_s: float) -> socket.socket:
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

    async def _speak(
        self,
        connected: socket.socket,
        url: WebhookUrl,
        *,
        protocol: Callable[[socket.socket], Opened],
        limit_s: float | None,
    ) -> Opened:
        loop = asyncio.get_running_loop()
        try:  # the socket is the loop's from here on, which closes it with the transport
            if url.scheme == "http":
                return (await loop.create_connection(lambda: protocol(connected), sock=connected))[1]
            async with asyncio.timeout(limit_s):
                _, opened = await loop.create_connection(
                    lambda: protocol(connected),
                    sock=connected,
                    ssl=self._tls,
                    server_hostname=url.host,
                    ssl_shutdown_timeout=_TLS_SHUTDOWN_S,
                )
                return opened
        except TimeoutError:
            raise DialFailed(OutcomeKind.TIMEOUT_BEFORE_SEND, "the TLS handshake did not end in time") from None
        except ssl.SSLCertVerificationError as error:
            raise DialFailed(OutcomeKind.TLS, f"certificate not accepted: {error.verify_message}") from None
        except ssl.SSLError as error:
            raise DialFailed(OutcomeKind.TLS, f"TLS failed: {error.reason or 'no reason given'}") from None
        except (OSError, ssl.CertificateError):
            raise DialFailed(OutcomeKind.TLS, "the host closed the connection during the TLS handshake") from None


def _alternate_families(addresses: Sequence[Address]) -> list[Address]:
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
