"""Opens connections: resolve, judge every address, dial the judged address, TLS on the URL's name.

Owns the order of these steps, which is the egress guard (reliability §3.1 S1, S4):

1. The host is resolved once for this connection. A literal is its own answer.
2. Every address of the answer is judged. One denied address denies all: an attacker's name server decides which of
   the addresses a client tries.
3. The judged addresses themselves are dialled, never the name, so a second answer cannot replace the first. The
   socket's peer is compared with the address that was judged.
4. The next address is tried only after a failure to connect, IPv6 and IPv4 by turns, each with its own short budget.
5. TLS names and verifies the URL's host, whatever address was dialled.

Behind an egress proxy the same holds, with "dialled" meaning what the proxy is asked to CONNECT to: the judged
address. A guard whose answer the proxy may look up again would be no guard. Proxies that allow by name need the name;
for them the operator says `egress_proxy_resolves`, and then steps 1 to 3 for names are the proxy's.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Sequence
from ipaddress import IPv6Address, ip_address
from typing import Final, TypeVar

import structlog

from onbeat.delivery.failure import DialFailed
from onbeat.delivery.limits import DialLimits
from onbeat.delivery.resolver import LookupFailed, Resolver
from onbeat.delivery.sockets import alternate_families, connect_first
from onbeat.delivery.tls import speak_tls
from onbeat.delivery.tunnel import CLOSED, TunnelRefused, open_tunnel
from onbeat.domain.egress import Address, Deny, EgressRules, vet
from onbeat.domain.egress_proxy import EgressProxy
from onbeat.domain.outcome import OutcomeKind
from onbeat.domain.webhook_url import WebhookUrl

_MAX_ADDRESSES: Final = 16
_NOT_ALLOWED: Final = "the host's address is not one that webhooks may reach"

log = structlog.get_logger(__name__)

Opened = TypeVar("Opened", bound=asyncio.Protocol)


class Dialer:
    """Opens one connection at a time for whoever asks; keeps none."""

    def __init__(
        self,
        *,
        rules: EgressRules,
        resolver: Resolver,
        tls: ssl.SSLContext,
        limits: DialLimits,
        proxy: EgressProxy | None = None,
    ) -> None:
        self._rules = rules
        self._resolver = resolver
        self._tls = tls
        self._limits = limits
        self._proxy = proxy

    async def dial(
        self, url: WebhookUrl, *, protocol: Callable[[socket.socket], Opened], limit_s: float | None = None
    ) -> Opened:
        """A connection to the URL's host, over TLS for https. Raises DialFailed.

        `limit_s` bounds all steps together and takes the place of the budgets of each.
        """
        try:
            async with asyncio.timeout(limit_s):
                connected = await self._reach(url, total_s=limit_s)
                return await self._speak(connected, url, protocol=protocol, total_s=limit_s)
        except TimeoutError:
            raise DialFailed(OutcomeKind.TIMEOUT_BEFORE_SEND, "there was no connection in time") from None

    async def _reach(self, url: WebhookUrl, *, total_s: float | None) -> socket.socket:
        proxy = self._proxy
        if proxy is not None and proxy.resolves and url.address is None:
            return await self._tunnel(f"{url.host}:{url.port}", proxy, total_s=total_s)
        addresses = self._judge(url, await self._find_addresses(url, total_s=total_s))
        if proxy is not None:
            return await self._tunnel_first(addresses, proxy, port=url.port, total_s=total_s)
        return await connect_first(addresses, port=url.port, limit_s=self._connect_s(addresses, total_s=total_s))

    def _connect_s(self, addresses: Sequence[Address], *, total_s: float | None) -> float:
        # Shared by the addresses, so that a dead first one does not use up the others' time.
        return self._limits.connect_s if total_s is None else total_s / len(addresses)

    async def _look_up(self, host: str, *, port: int, total_s: float | None) -> Sequence[str]:
        try:
            async with asyncio.timeout(self._limits.resolve_s if total_s is None else None):
                return await self._resolver.resolve(host, port=port)
        except TimeoutError:
            raise LookupFailed("the name server did not answer in time") from None

    # ---- the guard

    async def _find_addresses(self, url: WebhookUrl, *, total_s: float | None) -> Sequence[str]:
        if url.address is not None:
            return (url.host,)
        try:
            return await self._look_up(url.host, port=url.port, total_s=total_s)
        except LookupFailed as failure:
            raise DialFailed(OutcomeKind.DNS, str(failure)) from None

    def _judge(self, url: WebhookUrl, answer: Sequence[str]) -> list[Address]:
        for text in answer:
            verdict = vet(text, rules=self._rules)
            if isinstance(verdict, Deny):
                log.warning("egress_denied", host=url.host, address=text, reason=verdict.reason)
                raise DialFailed(OutcomeKind.BLOCKED, _NOT_ALLOWED)
        if not answer:
            raise DialFailed(OutcomeKind.DNS, "there is no such host name")
        return alternate_families([ip_address(text) for text in answer])[:_MAX_ADDRESSES]

    # ---- through the proxy

    async def _tunnel_first(
        self, addresses: Sequence[Address], proxy: EgressProxy, *, port: int, total_s: float | None
    ) -> socket.socket:
        """A tunnel to the first address that the proxy reaches."""
        failure = DialFailed(OutcomeKind.PROXY, "the egress proxy was not asked")
        for address in addresses:
            try:
                return await self._tunnel(_place(address, port), proxy, total_s=total_s)
            except TunnelRefused as refused:
                failure = refused
                if not refused.may_be_the_address:
                    break
        raise failure

    async def _tunnel(self, target: str, proxy: EgressProxy, *, total_s: float | None) -> socket.socket:
        connected = await self._connect_proxy(proxy, total_s=total_s)
        try:
            address, port, *_ = connected.getpeername()
            if target in (_place(ip_address(address), port), f"{proxy.host}:{proxy.port}"):
                # What listens there may trust whoever can reach it, and it answers more than CONNECT.
                log.warning("egress_denied", host=target, reason="the egress proxy itself")
                raise DialFailed(OutcomeKind.BLOCKED, _NOT_ALLOWED)
            tunnel_s = self._limits.tunnel_s if total_s is None else None
            await open_tunnel(connected, proxy=proxy, target=target, limit_s=tunnel_s)
        except OSError:  # reset before it could be asked
            connected.close()
            raise TunnelRefused(CLOSED) from None
        except BaseException:
            connected.close()
            raise
        return connected

    async def _connect_proxy(self, proxy: EgressProxy, *, total_s: float | None) -> socket.socket:
        """Its addresses are the operator's word, private ones as a rule, and are not judged."""
        try:
            if proxy.address is not None:
                addresses: list[Address] = [proxy.address]
            else:
                answer = await self._look_up(proxy.host, port=proxy.port, total_s=total_s)
                addresses = alternate_families([ip_address(text) for text in answer])[:_MAX_ADDRESSES]
            limit_s = self._connect_s(addresses, total_s=total_s)
            return await connect_first(addresses, port=proxy.port, limit_s=limit_s)
        except LookupFailed:
            raise DialFailed(OutcomeKind.PROXY, "the egress proxy's name did not resolve") from None
        except DialFailed as failure:
            raise DialFailed(OutcomeKind.PROXY, f"the egress proxy was not reached: {failure.reason}") from None

    # ---- what is spoken

    async def _speak(
        self,
        connected: socket.socket,
        url: WebhookUrl,
        *,
        protocol: Callable[[socket.socket], Opened],
        total_s: float | None,
    ) -> Opened:
        if url.scheme == "https":
            return await speak_tls(
                connected,
                host=url.host,
                context=self._tls,
                protocol=lambda: protocol(connected),
                limit_s=self._limits.tls_s if total_s is None else None,
            )
        try:
            loop = asyncio.get_running_loop()
            return (await loop.create_connection(lambda: protocol(connected), sock=connected))[1]
        except OSError:
            raise DialFailed(OutcomeKind.REFUSED, "the host closed the connection at once") from None


def _place(address: Address, port: int) -> str:
    """host:port, as CONNECT names it."""
    return f"[{address}]:{port}" if isinstance(address, IPv6Address) else f"{address}:{port}"
