"""Which server a command talks to, and with which key. The options that say so are declared once, here."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated
from urllib.parse import urlsplit

import typer

from onbeat.domain.errors import ConfigError

if TYPE_CHECKING:
    from onbeat.client.api import Api

DEFAULT_SERVER = "http://127.0.0.1:8623"

ServerOption = Annotated[
    str, typer.Option("--server", envvar="ONBEAT_URL", metavar="URL", help="The server to ask.", show_envvar=True)
]
JsonOption = Annotated[bool, typer.Option("--json", help="JSON on standard output and nothing else there.")]
LimitOption = Annotated[int, typer.Option("--limit", min=1, max=1000, help="How many to show.")]
CursorOption = Annotated[
    str | None, typer.Option("--cursor", metavar="CURSOR", help="Where to go on: next_cursor of the page before.")
]


def connect(server: str) -> Api:
    """The server, with the key from the environment. Raises ConfigError for a URL or key that cannot be one."""
    from onbeat.client.api import Api

    return Api(check_server(server), key=read_key())


def check_server(server: str) -> str:
    """`server`, which looks like the URL of one. Raises ConfigError."""
    try:
        parts = urlsplit(server)
        is_url = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
        server.encode()
    except ValueError:
        is_url = False
    if not is_url:
        raise ConfigError(
            f"{server!r} is not a server's URL", field="--server", remedy=f"write it like {DEFAULT_SERVER}"
        )
    return server


def read_key(given: str | None = None) -> str | None:
    """The API key: `given`, else ONBEAT_API_KEY, else the content of the file that ONBEAT_API_KEY_FILE names."""
    key, source = given or os.environ.get("ONBEAT_API_KEY"), "ONBEAT_API_KEY"
    if not key and (path := os.environ.get("ONBEAT_API_KEY_FILE")):
        source = "ONBEAT_API_KEY_FILE"
        try:
            key = Path(path).read_text().strip()
        except OSError as error:
            raise ConfigError(f"cannot read {path}: {error.strerror}", field=source) from None
        except UnicodeDecodeError:
            raise ConfigError(f"{path} holds no API key", field=source) from None
    if key and not (key.isascii() and key.isprintable() and " " not in key):
        raise ConfigError(
            "the API key holds characters that no key has", field="--key" if given else source, remedy="copy it again"
        )
    return key or None
