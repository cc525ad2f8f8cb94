"""What the sender allows itself and its receivers: lengths in seconds, and counts."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class DialLimits:
    """Budgets in seconds, each inside the attempt's own timeout."""

    resolve_s: float = 5.0  # one retransmission of a usual resolver
    connect_s: float = 3.0  # per address, so that a dead IPv6 route leaves time for IPv4
    tunnel_s: float = 5.0  # the proxy's own resolving and connecting, from its answer to CONNECT
    tls_s: float = 5.0


@dataclass(frozen=True, slots=True)
class SenderLimits:
    """Lengths in seconds."""

    dial: DialLimits = field(default_factory=DialLimits)
    permit_s: float = 2.0  # design §3: a lease permits to begin for 2 s
    connections_per_origin: int = 64
    idle_connections: int = 256  # over all origins
    idle_s: float = 4.0  # shorter than the 5 s after which common servers hang up on an idle client
    timer_step_s: float = 0.02
