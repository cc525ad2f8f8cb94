"""Draws docs/first-run.svg from a real `onbeat dev --demo`: python scripts/capture_first_run.py"""

from __future__ import annotations

import io
import os
import pty
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

WIDTH, FIRES = 112, 9
PICTURE = Path(__file__).parents[1] / "docs" / "first-run.svg"


def capture() -> str:
    """What a terminal shows until enough jobs have fired."""
    search = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    screen, terminal = pty.openpty()
    with tempfile.TemporaryDirectory() as directory:
        process = subprocess.Popen(
            ["onbeat", "dev", "--demo"],
            stdout=terminal,
            cwd=directory,
            env={"PATH": search, "TERM": "xterm-256color", "COLUMNS": str(WIDTH)},
        )
        shown = b""
        while shown.count(b"signature ok") < FIRES:
            shown += os.read(screen, 65_536)
        process.send_signal(signal.SIGTERM)
        process.wait()
    return shown.decode().replace("\r", "")


def draw(shown: str) -> str:
    """The picture. The secret is not in it, and no font is fetched from elsewhere."""
    console = Console(width=WIDTH, record=True, file=io.StringIO())
    console.print(Text.from_ansi("$ onbeat dev --demo\n" + re.sub(r"whsec_\S+", "whsec_…", shown).rstrip()))
    return re.sub(r"@font-face \{.*?\}\s*", "", console.export_svg(title="onbeat"), flags=re.DOTALL)


if __name__ == "__main__":
    PICTURE.write_text(draw(capture()))
