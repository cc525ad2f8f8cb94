"""Where peers are installed: environments of their own under var/, from the locks in bench/peers/requirements."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from bench.machine import ROOT

REQUIREMENTS = Path(__file__).parent / "requirements"
ADAPTERS = Path(__file__).parent / "adapters"
PLACE = ROOT / "var" / "bench-peers"


class NotInstallable(Exception):
    """Why a peer cannot be had here."""


def python_of_peers() -> Path:
    """The interpreter of an environment that has the Python peers."""
    place = PLACE / "python"
    python = place / "bin" / "python"

    def install() -> None:
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(place)], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        subprocess.run([*pip, "--require-hashes", "-r", str(REQUIREMENTS / "python.lock")], check=True)

    _install_once(place, REQUIREMENTS / "python.lock", install)
    return python


def node_modules() -> Path:
    """A folder that has BullMQ in its node_modules."""
    if shutil.which("node") is None or shutil.which("npm") is None:
        raise NotInstallable("needs Node.js and npm")
    place = PLACE / "node"

    def install() -> None:
        place.mkdir(parents=True, exist_ok=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(REQUIREMENTS / name, place / name)
        subprocess.run(["npm", "ci", "--silent", "--no-audit", "--no-fund"], check=True, cwd=place)

    _install_once(place, REQUIREMENTS / "package-lock.json", install)
    return place


def _install_once(place: Path, lock: Path, install: Callable[[], None]) -> None:
    """Again only when the lock has changed."""
    stamp = place / ".installed"
    digest = hashlib.sha256(lock.read_bytes()).hexdigest()
    if stamp.exists() and stamp.read_text() == digest:
        return
    try:
        install()
    except (OSError, subprocess.CalledProcessError) as error:
        raise NotInstallable(f"its packages could not be installed: {error}") from None
    stamp.write_text(digest)
