"""Time zones by IANA name, from the pinned `tzdata` wheel and from nothing else.

Python's own lookup prefers the system's zone files, which differ from host to host: two nodes would then plan
different instants for one job. So files are read from the wheel directly. `docs/time.md` tells the story.
"""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from importlib import import_module, resources
from typing import Final
from zoneinfo import ZoneInfo

from onbeat.domain.errors import DefinitionError

TZDATA_VERSION: Final[str] = import_module("tzdata").IANA_VERSION
"""The release of the IANA database that instants are planned with, such as `2026a`."""

_FILES = resources.files("tzdata")
_NO_PLACE = frozenset({"Factory"})  # stands for "not configured yet"; nobody means it
_SHOWN_LENGTH = 60
_EXAMPLES = "use a name of the IANA database such as 'Europe/Berlin', 'America/New_York' or 'UTC'"


@cache
def all_zone_names() -> frozenset[str]:
    """Every name that `zone` accepts: canonical ones and links."""
    return frozenset(_FILES.joinpath("zones").read_text(encoding="ascii").split()) - _NO_PLACE


def zone(name: str) -> ZoneInfo:
    """The zone called `name`, spelt exactly. Raises DefinitionError(`timezone_unknown`).

    Only names on the wheel's list are looked up, so no text from outside ever becomes a path.
    """
    if not isinstance(name, str) or name not in all_zone_names():
        raise DefinitionError(
            "timezone_unknown",
            f"{_shown(name)} is no time zone of the IANA database {TZDATA_VERSION}",
            field="timezone",
            remedy=_remedy(name),
        )
    return _load(name)


@cache
def _load(name: str) -> ZoneInfo:
    with _FILES.joinpath("zoneinfo", *name.split("/")).open("rb") as file:
        return ZoneInfo.from_file(file, key=name)


def _shown(name: object) -> str:
    text = repr(name)
    return text if len(text) <= _SHOWN_LENGTH else text[:_SHOWN_LENGTH] + "…"


def _remedy(name: object) -> str:
    if not isinstance(name, str) or not name or len(name) > _SHOWN_LENGTH:
        return _EXAMPLES
    by_lower = {known.lower(): known for known in sorted(all_zone_names())}
    # People also give the city alone: compare with the last part of each name too.
    by_city = {known.rsplit("/", 1)[-1].lower(): known for known in sorted(all_zone_names())}
    wanted = name.strip().lower().replace(" ", "_")
    near = [by_lower[match] for match in get_close_matches(wanted, by_lower, n=3, cutoff=0.8)]
    near += [by_city[match] for match in get_close_matches(wanted, by_city, n=2, cutoff=0.85)]
    if not near:
        return _EXAMPLES
    return "did you mean " + " or ".join(f"'{match}'" for match in dict.fromkeys(near)) + "?"
