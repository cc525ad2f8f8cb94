"""Whether a webhook can be sent as written. Pure; asked when a job is saved and again before every send.

Owns the bounds of method, headers and body and what the rules say about the URL. Rows written by an older version, or
by hand, meet the same function again at send time, so nothing unvalidated reaches a socket.
Source: reliability §3.4 A–D, §3.1 S6.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from onbeat.domain.egress import Deny, EgressRules, vet
from onbeat.domain.errors import DefinitionError
from onbeat.domain.model import WebhookTarget
from onbeat.domain.webhook_url import FIELD as URL_FIELD
from onbeat.domain.webhook_url import WebhookUrl, parse_url

METHODS: Final = ("POST", "PUT", "PATCH", "DELETE", "GET", "HEAD")
BODILESS_METHODS: Final = frozenset({"GET", "HEAD"})
MAX_BODY_BYTES: Final = 262_144
MAX_HEADERS: Final = 100
MAX_HEADER_BYTES: Final = 16_384

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]{1,256}", re.ASCII)
_VALUE = re.compile(r"[\t\x20-\x7e]*", re.ASCII)
_RESERVED_NAMES: Final = frozenset(
    {
        "host", "content-length", "transfer-encoding", "connection", "expect", "upgrade", "te", "trailer",
        "keep-alive", "accept-encoding", "idempotency-key", "content-digest", "traceparent", "http2-settings",
    }
)  # fmt: skip
_RESERVED_PREFIXES: Final = ("proxy-", "webhook-", "signature", "onbeat-")
_BLOCKED_SUFFIXES: Final = (".localhost", ".internal", ".local", ".localdomain", ".home.arpa")
_BLOCKED_NAMES: Final = frozenset({"localhost", "metadata.google.internal", "instance-data.ec2.internal"})


def check_webhook(target: WebhookTarget, rules: EgressRules) -> WebhookUrl:
    """The parsed URL of a target that can be sent.

    Raises DefinitionError with the field and a remedy: url_invalid, url_too_long, scheme_not_allowed, self_target,
    url_blocked_host, url_blocked_address, https_required, port_not_allowed, method_invalid, header_invalid,
    header_reserved, body_invalid, body_too_large.
    """
    url = _reachable(target.url, rules) if isinstance(target.url, str) else parse_url(target.url)
    _check_method(target)
    _check_headers(target.headers)
    check_text(target.body, field="target.body")
    check_text(target.payload, field="target.payload")
    return url


def check_text(text: object, *, field: str) -> None:
    """Raises DefinitionError (body_invalid, body_too_large) unless `text` is None or text that fits a request body."""
    if text is None:
        return
    if not isinstance(text, str):
        raise DefinitionError("body_invalid", "a body is text", field=field)
    try:
        size = len(text.encode("utf-8"))
    except UnicodeEncodeError:
        raise DefinitionError(
            "body_invalid", "the text contains half of a surrogate pair, which UTF-8 cannot carry", field=field
        ) from None
    if size > MAX_BODY_BYTES:
        raise DefinitionError(
            "body_too_large",
            f"{size} bytes are more than the {MAX_BODY_BYTES} that a webhook may carry",
            field=field,
            remedy="store the data and send a reference to it",
        )


@lru_cache(maxsize=4_096)  # jobs of one tenant call the same endpoint
def _reachable(text: str, rules: EgressRules) -> WebhookUrl:
    url = parse_url(text)
    _check_reach(url, rules)
    return url


def _check_reach(url: WebhookUrl, rules: EgressRules) -> None:
    if (url.host, url.port) in rules.own:
        raise DefinitionError("self_target", "the URL is onbeat's own", field=URL_FIELD, remedy="call another service")
    if url.address is not None:
        if isinstance(vet(url.address, rules=rules), Deny):
            raise DefinitionError(
                "url_blocked_address",
                "this address is not one that webhooks may reach",
                field=URL_FIELD,
                remedy="use a public address, or ask the operator to allow the network",
            )
    elif _is_blocked_name(url.host) and not rules.allows_host(url.host):
        raise DefinitionError(
            "url_blocked_host",
            f"{url.host!r} is a name of an internal network",
            field=URL_FIELD,
            remedy="use a public name, or ask the operator to allow the host",
        )
    if url.scheme == "http" and not rules.allow_http:
        raise DefinitionError("https_required", "webhooks use TLS here", field=URL_FIELD, remedy="use https://")
    if not _is_allowed_port(url, rules):
        raise DefinitionError(
            "port_not_allowed",
            f"port {url.port} is not one that webhooks may use",
            field=URL_FIELD,
            remedy="use one of " + ", ".join(str(port) for port in sorted(rules.ports or ())),
        )


def _is_blocked_name(host: str) -> bool:
    return "." not in host or host in _BLOCKED_NAMES or host.endswith(_BLOCKED_SUFFIXES)


def _is_allowed_port(url: WebhookUrl, rules: EgressRules) -> bool:
    if rules.ports is None or url.port in rules.ports:
        return True
    return url.scheme == "http" and url.port == 80


def _check_method(target: WebhookTarget) -> None:
    if target.method not in METHODS:
        raise DefinitionError(
            "method_invalid",
            f"{target.method!r:.40} is not one of {', '.join(METHODS)}",
            field="target.method",
            remedy="use POST",
        )
    if target.method in BODILESS_METHODS and target.body is not None:
        raise DefinitionError(
            "method_invalid",
            f"a {target.method} request carries no body",
            field="target.body",
            remedy="use POST, or leave the body out",
        )


def _check_headers(headers: dict[str, str]) -> None:
    if not isinstance(headers, dict):
        raise DefinitionError("header_invalid", "headers are a map of names to values", field="target.headers")
    if len(headers) > MAX_HEADERS:
        raise DefinitionError(
            "header_invalid", f"{len(headers)} headers are more than {MAX_HEADERS}", field="target.headers"
        )
    seen: set[str] = set()
    size = 0
    for name, value in headers.items():
        _check_header(name, value)
        size += len(name) + len(value) + 4
        if name.lower() in seen:
            raise DefinitionError(
                "header_invalid",
                "the same header stands there twice; upper and lower case make no difference",
                field=_header_field(name),
                remedy="keep one of the two",
            )
        seen.add(name.lower())
    if size > MAX_HEADER_BYTES:
        raise DefinitionError(
            "header_invalid",
            f"the headers take {size} bytes, more than {MAX_HEADER_BYTES}",
            field="target.headers",
            remedy="put large values into the body",
        )


def _check_header(name: object, value: object) -> None:
    field = _header_field(name)
    if not isinstance(name, str) or not _TOKEN.fullmatch(name):
        raise DefinitionError(
            "header_invalid",
            "a header's name consists of letters, digits and hyphens",
            field=field,
            remedy="use a name such as X-Tenant",
        )
    lowered = name.lower()
    if lowered in _RESERVED_NAMES or lowered.startswith(_RESERVED_PREFIXES):
        raise DefinitionError(
            "header_reserved", f"onbeat sets {name} itself", field=field, remedy="leave this header out"
        )
    if not isinstance(value, str):
        raise DefinitionError(
            "header_invalid", "a header's value is a string", field=field, remedy="put the value in quotes"
        )
    if not _VALUE.fullmatch(value) or value != value.strip(" \t"):
        raise DefinitionError(
            "header_invalid",
            "a header's value consists of printable ASCII, without line breaks or blanks around it",
            field=field,
            remedy="percent-encode other characters, or put the text into the body",
        )


def _header_field(name: object) -> str:
    shown = ascii(name)[1:-1] if isinstance(name, str) else ascii(name)
    return f"target.headers.{shown[:80]}"
