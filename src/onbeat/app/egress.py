"""From settings to what webhooks may reach, and how they go out."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from onbeat.config import Settings
from onbeat.domain.egress import EgressRules
from onbeat.domain.egress_proxy import EgressProxy, parse_proxy_url


def egress_rules(settings: Settings) -> EgressRules:
    """What webhooks may reach, as configured."""
    own: frozenset[tuple[str, int]] = frozenset()
    if settings.public_url is not None:
        parts = urlsplit(settings.public_url)
        if parts.hostname is not None:
            own = frozenset({(parts.hostname, parts.port or (443 if parts.scheme == "https" else 80))})
    return EgressRules(
        allow_networks=tuple(ipaddress.ip_network(network) for network in settings.allow_networks),
        allow_hosts=frozenset(settings.allow_hosts),
        allow_http=settings.allow_http,
        ports=frozenset(settings.allow_ports) or None,
        nat64=settings.nat64,
        own=own,
    )


def egress_proxy(settings: Settings) -> EgressProxy | None:
    """What webhooks go out through, as configured; None: nothing."""
    if settings.egress_proxy is None:
        return None
    return parse_proxy_url(settings.egress_proxy, resolves=settings.egress_proxy_resolves)
