"""`onbeat version`."""

from __future__ import annotations

import platform

from onbeat.cli.connection import JsonOption
from onbeat.cli.terminal import print_json


def version(as_json: JsonOption = False) -> None:
    """The versions of onbeat, Python, SQLite and the zone data."""
    from importlib.metadata import version as installed

    import apsw

    from onbeat.domain.zones import TZDATA_VERSION

    versions = {
        "onbeat": installed("onbeat"),
        "python": platform.python_version(),
        "sqlite": apsw.sqlite_lib_version(),
        "tzdata": TZDATA_VERSION,
    }
    if as_json:
        print_json(versions)
    else:
        print("\n".join(f"{name} {number}" for name, number in versions.items()))
