"""Which server a command talks to, and with which key. The options that say so are declared once, here."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

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
    """The server, with the key from the environment."""
    from onbeat.client.api import Api

    return Api(server, key=read_key())


def read_key() -> str | None:
    """The API key: ONBEAT_API_KEY, or the content of the file that ONBEAT_API_KEY_FILE names."""
    if key := os.environ.get("ONBEAT_API_KEY"):
        return key.strip()
    path = os.environ.get("ONBEAT_API_KEY_FILE")
    if path is None:
        return None
    try:
        return Path(path).read_text().strip()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}", field="ONBEAT_API_KEY_FILE") from None
