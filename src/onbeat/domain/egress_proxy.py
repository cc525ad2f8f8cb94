"""The operator's egress proxy: how its URL is read, and which name it is given. Pure.

Owns the setting's meaning. The tunnel itself is delivery/tunnel.py's.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from ipaddress import IPv4Address, IPv6Address
from typing import Final
from urllib.parse import unquote_to_bytes

from onbeat.domain.errors import DefinitionError
from onbeat.domain.webhook_url import parse_url

_EXAMPLE: Final = "http://user:password@proxy.example.com:3128"


@dataclass(frozen=True, slots=True)
class EgressProxy:
    """Where every webhook goes through, by CONNECT.

    `resolves` False: names are resolved and judged here, and the proxy is given the judged address. True: it is given
    the name, and judging what the name leads to is its part; literal addresses are judged here all the same.
    """

    host: str
    port: int
    address: IPv4Address | IPv6Address | None  # where the host is a literal
    authorization: str | None = field(repr=False)  # for the proxy alone, never for the target
    resolves: bool = False


def parse_proxy_url(text: str, *, resolves: bool = False) -> EgressProxy:
    """`http://user:password@host:port`, user and password percent-encoded and optional.

    Raises ValueError; the text of the error holds nothing of the URL, which is a secret.
    """
    scheme, separator, rest = text.partition("://")
    if not separator or scheme.lower() != "http":
        raise ValueError(f"the proxy is spoken to by http, as in {_EXAMPLE}")
    credentials, at, place = rest.rpartition("@")
    place = place.removesuffix("/")
    try:
        url = parse_url(f"http://{place}")
    except DefinitionError:
        raise ValueError(f"not a proxy such as {_EXAMPLE}") from None
    if url.request_target != b"/" or place.endswith("/") or not place.endswith(f":{url.port}"):
        raise ValueError(f"a proxy is a host and a port, as in {_EXAMPLE}")
    return EgressProxy(
        host=url.host,
        port=url.port,
        address=url.address,
        authorization=_basic(credentials) if at else None,
        resolves=resolves,
    )


def _basic(credentials: str) -> str:
    user, _, password = credentials.partition(":")
    if not all(_is_encoded(part) for part in (user, password)):
        raise ValueError("user and password of a proxy are percent-encoded: / is %2F, @ is %40, : is %3A")
    raw_user, raw_password = unquote_to_bytes(user), unquote_to_bytes(password)
    if not raw_user or b":" in raw_user or any(byte < 0x20 or byte == 0x7F for byte in raw_user + raw_password):
        raise ValueError(
            "a proxy's user has a name without a colon, and neither it nor the password a control character"
        )
    return "Basic " + base64.b64encode(raw_user + b":" + raw_password).decode("ascii")


def _is_encoded(part: str) -> bool:
    return part.isascii() and not set(part) & set("/?#@: []\\") and part.isprintable()
