"""Which addresses and hosts a webhook may reach. Pure: the tables and the one function that reads them.

Owns the answer to "may this be dialled?". Does not resolve and does not connect: delivery/dialer.py asks `vet` about
every address of every answer, domain/webhook.py about literals when a job is saved.

The tables are explicit on purpose. `ipaddress.is_global` differs between patch releases of Python and calls
168.63.129.16, ::127.0.0.1 and multicast global in some of them. Source of the tables: reliability §3.1 S3.
"""

from __future__ import annotations

from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

DEFAULT_PORTS: Final = frozenset({443, 8080, 8443})  # 80 joins them where http is allowed


@dataclass(frozen=True, slots=True, eq=False)
class EgressRules:
    """What the operator lets webhooks reach. The defaults fit a server whose job owners are strangers.

    A process has one of them, and what was judged by it is remembered under it: compared by identity, which is quick.

    `allow_networks` opens denied networks. Link-local and cloud metadata addresses stay closed unless a network inside
    theirs is listed itself: 0.0.0.0/0 does not open 169.254.169.254, 169.254.169.254/32 does.
    `allow_hosts` opens blocked names ("db", or "*.internal" for everything below a suffix), never their addresses.
    """

    allow_networks: tuple[Network, ...] = ()
    allow_hosts: frozenset[str] = frozenset()
    allow_http: bool = False
    ports: frozenset[int] | None = DEFAULT_PORTS  # None: any
    nat64: bool = False  # judge 64:ff9b::/96 by the IPv4 address inside; for networks that reach IPv4 only so
    own: frozenset[tuple[str, int]] = frozenset()  # (host, port) under which this server itself is reached

    @classmethod
    def for_development(cls, *, own: frozenset[tuple[str, int]] = frozenset()) -> EgressRules:
        """The rules of `onbeat dev`: loopback, http and every port are open as well."""
        return cls(
            allow_networks=(IPv4Network("127.0.0.0/8"), IPv6Network("::1/128")),
            allow_hosts=frozenset({"localhost", "*.localhost"}),
            allow_http=True,
            ports=None,
            own=own,
        )

    def allows_host(self, host: str) -> bool:
        """True where `allow_hosts` names this host or a suffix above it."""
        if host in self.allow_hosts:
            return True
        return any(pattern.startswith("*.") and host.endswith(pattern[1:]) for pattern in self.allow_hosts)


@dataclass(frozen=True, slots=True)
class Allow:
    """The address may be dialled."""


@dataclass(frozen=True, slots=True)
class Deny:
    """The address must not be dialled. `reason` is for the operator's log, never for the tenant."""

    reason: str


_ALLOW: Final = Allow()

_CLOSED: Final[tuple[tuple[Network, str], ...]] = tuple(
    (ip_network(text), reason)
    for text, reason in (
        ("169.254.0.0/16", "link-local and cloud metadata"),
        ("168.63.129.16/32", "Azure host services"),
        ("100.100.100.200/32", "Alibaba metadata"),
        ("192.0.0.192/32", "Oracle metadata"),
        ("fe80::/10", "link-local"),
        ("fd00:ec2::/32", "AWS metadata"),
    )
)
"""Denied even inside an allowed network, unless the allowed network lies inside one of these."""

_DENIED_V4: Final = tuple(
    (IPv4Network(text), reason)
    for text, reason in (
        ("0.0.0.0/8", "this host"),
        ("10.0.0.0/8", "private"),
        ("100.64.0.0/10", "carrier-grade NAT"),
        ("127.0.0.0/8", "loopback"),
        ("172.16.0.0/12", "private"),
        ("192.0.0.0/24", "protocol assignments"),
        ("192.0.2.0/24", "documentation"),
        ("192.88.99.0/24", "6to4 relay"),
        ("192.168.0.0/16", "private"),
        ("198.18.0.0/15", "benchmarking"),
        ("198.51.100.0/24", "documentation"),
        ("203.0.113.0/24", "documentation"),
        ("224.0.0.0/4", "multicast"),
        ("240.0.0.0/4", "reserved and broadcast"),
    )
)

_GLOBAL_V6: Final = IPv6Network("2000::/3")
_DENIED_V6: Final = tuple(
    (IPv6Network(text), reason)
    for text, reason in (
        ("2001::/23", "protocol assignments and Teredo"),
        ("2001:db8::/32", "documentation"),
        ("2002::/16", "6to4"),
        ("3fff::/20", "documentation"),
    )
)
_NAT64: Final = IPv6Network("64:ff9b::/96")


def vet(address: str | Address, *, rules: EgressRules) -> Allow | Deny:
    """May this address be dialled? The only judge: every literal and every resolved address comes here.

    Text that is no address is denied. Addresses that embed an IPv4 address (mapped, compatible, translated, NAT64,
    6to4, Teredo) lie outside the allowed IPv6 space, so they are denied as they stand; with `nat64` the well-known
    prefix is unwrapped and the inner address judged without `allow_networks`, since a translator must never be a way
    into the operator's own networks.
    """
    if isinstance(address, str):
        try:
            address = ip_address(address)
        except ValueError:
            return Deny("not an address")
    for network, reason in _CLOSED:
        if address in network:
            return _ALLOW if _is_opened_inside(network, address, rules) else Deny(reason)
    if any(address in network for network in rules.allow_networks):
        return _ALLOW
    if isinstance(address, IPv4Address):
        return _vet_v4(address)
    if rules.nat64 and address in _NAT64:
        return vet(IPv4Address(int(address) & 0xFFFF_FFFF), rules=EgressRules())
    return _vet_v6(address)


def _is_opened_inside(closed: Network, address: Address, rules: EgressRules) -> bool:
    return any(
        allowed.version == closed.version
        and allowed.prefixlen >= closed.prefixlen
        and allowed.network_address in closed
        and address in allowed
        for allowed in rules.allow_networks
    )


def _vet_v4(address: IPv4Address) -> Allow | Deny:
    for network, reason in _DENIED_V4:
        if address in network:
            return Deny(reason)
    return _ALLOW


def _vet_v6(address: IPv6Address) -> Allow | Deny:
    if address not in _GLOBAL_V6:
        return Deny("outside the global IPv6 space")
    for network, reason in _DENIED_V6:
        if address in network:
            return Deny(reason)
    return _ALLOW
