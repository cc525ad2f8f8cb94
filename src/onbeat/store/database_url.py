"""URLs of databases as people write them: which kind it is, and what of it may be shown."""

from __future__ import annotations

from typing import Final
from urllib.parse import parse_qsl

_SCHEMES: Final = ("postgres://", "postgresql://")
_SECRET_OPTIONS: Final = ("password", "sslpassword")


def is_postgres_url(url: str) -> bool:
    """Does this name a PostgreSQL database, rather than a data file?"""
    return url.lower().startswith(_SCHEMES)


def hide_password(url: str) -> str:
    """What logs and people may see: user, host and database, of any text that begins as a PostgreSQL URL does."""
    if not is_postgres_url(url):
        return url
    scheme, _, rest = url.partition("://")
    # A password that nobody escaped may hold any of / ? # @, so the last @ ends it.
    login, at, place = rest.rpartition("@")
    return f"{scheme}://{login.partition(':')[0]}{at}{place.partition('?')[0]}"


def holds_password(url: str) -> bool:
    """Would whoever reads this URL know a password?"""
    if not is_postgres_url(url):
        return False
    login, _, place = url.partition("://")[2].rpartition("@")
    options = parse_qsl(place.partition("?")[2])
    return ":" in login or any(name in _SECRET_OPTIONS for name, _value in options)
