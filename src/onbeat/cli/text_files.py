"""Files that a command is given to read, as every system writes them: UTF-8, with or without the mark that says so."""

from __future__ import annotations

import sys
from pathlib import Path

from onbeat.domain.errors import RequestError

BYTE_ORDER_MARK = "\ufeff"


def read_text(path: Path) -> str:
    """What is in it; `-` is standard input. Raises RequestError."""
    try:
        # Bytes, since the encoding of text streams follows the terminal's settings.
        raw = sys.stdin.buffer.read() if str(path) == "-" else path.read_bytes()
        return raw.decode().removeprefix(BYTE_ORDER_MARK)
    except OSError as error:
        raise RequestError(f"cannot read it: {error.strerror}", field=str(path)) from None
    except UnicodeDecodeError:
        raise RequestError("it is not UTF-8 text", field=str(path)) from None
