"""The one parser of webhook URLs. What it returns is what is dialled, named in TLS and sent; no URL is parsed twice.

Owns the syntax. Which hosts, ports and schemes are allowed is domain/webhook.py's word.

`urllib.parse` is not used: it drops tabs, takes `http://[::1]evil.com/` for the host ::1 and finds the host after a
backslash that others treat as a slash. Here everything that two parsers could read in two ways is refused.
Source: reliability §3.1 S5, S6; RFC 3986; UTS 46 for names; the WHATWG rule for names that end in a number.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address
from typing import Final
from urllib.parse import quote

import idna

from onbeat.domain.errors import DefinitionError

MAX_URL_BYTES: Final = 2_048
FIELD: Final = "target.url"
_SCHEME_PORTS: Final = {"http": 80, "https": 443}

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*):", re.ASCII)
_AFTER_SCHEME = re.compile(r"//([^/?#]+)([^#]*)")
_AUTHORITY = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*)(?::([0-9]*))?", re.ASCII)
_PORT = re.compile(r"[1-9][0-9]{0,4}|0", re.ASCII)
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?", re.ASCII)
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*", re.ASCII)
_DECIMAL_BYTE = re.compile(r"0|[1-9][0-9]{0,2}", re.ASCII)
_REQUEST_TARGET = re.compile(r"(?:[A-Za-z0-9\-._~:/?@!$&'()*+,;=\[\]]|%[0-9A-Fa-f]{2})*", re.ASCII)
_SAFE_IN_TARGET: Final = "-._~:/?@!$&'()*+,;=[]%"


@dataclass(frozen=True, slots=True)
class WebhookUrl:
    """A URL as it will be used."""

    scheme: str  # http | https
    host: str  # A-labels in lower case, or the address in its canonical text; no brackets, no final dot
    port: int
    request_target: bytes  # path and query, byte for byte as written
    address: IPv4Address | IPv6Address | None  # where the host is a literal

    @property
    def authority(self) -> str:
        """The `host` header: brackets around IPv6, the port only where it is not the scheme's own."""
        host = f"[{self.host}]" if isinstance(self.address, IPv6Address) else self.host
        return host if self.port == _SCHEME_PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def text(self) -> str:
        """The URL as it is shown: names as A-labels, so that two names that look alike do not."""
        return f"{self.scheme}://{self.authority}{self.request_target.decode('ascii')}"


def parse_url(text: object) -> WebhookUrl:
    """The URL behind `text`.

    Raises DefinitionError: url_too_long, scheme_not_allowed, port_not_allowed (no such port), url_blocked_address
    (a number that resolvers read as an IPv4 address, written otherwise than as four decimal bytes), url_invalid.
    """
    if not isinstance(text, str):
        raise _refusal("url_invalid", "the URL is not a string")
    if len(text.encode("utf-8", "surrogatepass")) > MAX_URL_BYTES:
        raise _refusal("url_too_long", f"the URL is longer than {MAX_URL_BYTES} bytes")
    _refuse_ambiguous_characters(text)
    scheme = _read_scheme(text)
    found = _AFTER_SCHEME.fullmatch(text, len(scheme) + 1)
    if found is None and "#" in text:
        raise _refusal("url_invalid", "the URL has a fragment, which is never sent", remedy="remove # and the rest")
    if found is None:
        raise _refusal("url_invalid", "the URL names no host", remedy=f"write {scheme}://host/path")
    authority, target = found[1], found[2]
    host, port = _split_authority(authority)
    name, address = _read_host(host)
    return WebhookUrl(
        scheme=scheme,
        host=name,
        port=_SCHEME_PORTS[scheme] if port is None else port,
        request_target=_read_request_target(target, url=text),
        address=address,
    )


def _refusal(code: str, detail: str, *, remedy: str | None = None) -> DefinitionError:
    return DefinitionError(code, detail, field=FIELD, remedy=remedy)


def _read_scheme(text: str) -> str:
    found = _SCHEME.match(text)
    if found is None:
        raise _refusal("url_invalid", "the URL does not begin with a scheme", remedy="write https://host/path")
    scheme = found[1].lower()
    if scheme not in _SCHEME_PORTS:
        raise _refusal("scheme_not_allowed", f"{scheme[:40]}: is no scheme that webhooks use", remedy="use https://")
    return scheme


def _refuse_ambiguous_characters(text: str) -> None:
    if "\\" in text:
        raise _refusal("url_invalid", "the URL contains a backslash", remedy="write %5C in paths and queries")
    for character in text:
        if character <= " " or character == "\x7f":
            raise _refusal(
                "url_invalid",
                f"the URL contains the character U+{ord(character):04X}",
                remedy="percent-encode it: a blank is %20",
            )


def _split_authority(authority: str) -> tuple[str, int | None]:
    if "@" in authority:
        raise _refusal("url_invalid", "the URL carries a user name", remedy="send credentials in a header")
    found = _AUTHORITY.fullmatch(authority)
    if found is None:
        raise _refusal("url_invalid", f"{authority[:80]!r} is not host or host:port")
    host, port_text = found[1], found[2]
    if port_text is None:
        return host, None
    if not _PORT.fullmatch(port_text) and not (port_text.isdigit() and port_text[0] != "0"):
        raise _refusal("url_invalid", f"{port_text[:20]!r} is not a port")
    if len(port_text) > 5 or not 0 < int(port_text) < 65_536:
        raise _refusal("port_not_allowed", "a port is a number from 1 to 65535")
    return host, int(port_text)


def _read_host(host: str) -> tuple[str, IPv4Address | IPv6Address | None]:
    if host.startswith("["):
        try:
            address = IPv6Address(host[1:-1])
        except ValueError:
            raise _refusal("url_invalid", f"{host[:60]!r} is not an IPv6 address") from None
        if address.scope_id is not None:
            raise _refusal("url_invalid", "an address with a zone means something on one machine only")
        return address.compressed, address
    name = _read_name(host)
    labels = name.split(".")
    if _NUMBER.fullmatch(labels[-1]):
        literal = _read_dotted_decimal(labels)
        return str(literal), literal
    return name, None


def _read_name(host: str) -> str:
    name = host.lower() if host.isascii() else _to_ascii(host)
    name = name.removesuffix(".")
    labels = name.split(".")
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise _refusal("url_invalid", f"{host[:80]!r} is not a host name")
    if any(label.startswith("xn--") for label in labels):
        _to_ascii(name)
    return name


def _to_ascii(host: str) -> str:
    # UTS 46 first, as browsers and resolvers do: it is what turns full-width digits and the Kelvin sign into ASCII, so
    # the checks that follow see the name that would be looked up.
    try:
        return idna.encode(host, uts46=True).decode("ascii")
    except (idna.IDNAError, UnicodeError):
        raise _refusal("url_invalid", f"{host[:80]!r} is not an internationalised host name") from None


def _read_dotted_decimal(labels: list[str]) -> IPv4Address:
    # A name that ends in a number is an IPv4 address to resolvers, in spellings that ipaddress does not know: 127.1,
    # 0x7f.1, 2130706433. "Not a literal" must not mean "a name".
    if len(labels) == 4 and all(_DECIMAL_BYTE.fullmatch(label) and int(label) < 256 for label in labels):
        return IPv4Address(".".join(labels))
    if _resolvers_read_as_address(labels):
        raise _refusal(
            "url_blocked_address",
            "the host is an IPv4 address in disguise",
            remedy="write the address as four decimal numbers, as in 198.51.100.7",
        )
    raise _refusal("url_invalid", "a host that ends in a number must be an IPv4 address")


def _resolvers_read_as_address(labels: list[str]) -> bool:
    """What inet_aton takes: one to four numbers in any base, the last one filling the bytes that are left."""
    if len(labels) > 4:
        return False
    numbers: list[int] = []
    for label in labels:
        try:
            if label.startswith("0x"):
                numbers.append(int(label[2:] or "0", 16))
            elif label.startswith("0") and label != "0":
                numbers.append(int(label, 8))
            else:
                numbers.append(int(label, 10))
        except ValueError:
            return False
    return all(number < 256 for number in numbers[:-1]) and numbers[-1] < 256 ** (5 - len(numbers))


def _read_request_target(target: str, *, url: str) -> bytes:
    if not _REQUEST_TARGET.fullmatch(target):
        encoded = quote(re.sub(r"%(?![0-9A-Fa-f]{2})", "%25", target), safe=_SAFE_IN_TARGET, errors="replace")
        raise _refusal(
            "url_invalid",
            "path and query contain characters that a URL must write percent-encoded",
            remedy=f"write {url[: len(url) - len(target)]}{encoded}",
        )
    if not target.startswith("/"):
        target = "/" + target
    return target.encode("ascii")
