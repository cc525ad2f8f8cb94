"""Public holidays by country, from the `holidays` package. Owns which countries are known and nothing of calendars.

The package computes; it reads no clock and asks nobody. It is imported late, since few commands need it.
"""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache, lru_cache
from typing import Final

from onbeat.domain.errors import DefinitionError

_EPOCH_ORDINAL: Final = 719_163  # date(1970, 1, 1).toordinal()
_SHOWN_LENGTH: Final = 40


def check_country(country: str, subdivision: str | None) -> None:
    """Refuse what the package has no holidays for. Raises DefinitionError(`country_unknown`)."""
    known = _countries()
    if country not in known:
        near = get_close_matches(country.upper()[:_SHOWN_LENGTH], known, n=1)
        raise DefinitionError(
            "country_unknown",
            f"no public holidays are known for the country {country[:_SHOWN_LENGTH]!a}",
            field="country",
            remedy=f"did you mean {near[0]!r}?" if near else "use its ISO 3166 code of two letters, such as 'DE'",
        )
    if subdivision is not None and subdivision not in known[country]:
        listed = ", ".join(known[country][:60])
        raise DefinitionError(
            "country_unknown",
            f"no public holidays are known for the subdivision {subdivision[:_SHOWN_LENGTH]!a} of {country}",
            field="subdivision",
            remedy=f"use one of {listed}" if listed else "leave it out: this country has none",
        )


# A country's year is a set of some kB and takes 0.3 ms; the first one of a country also loads its module (0.2 s).
@lru_cache(maxsize=4_096)
def public_holidays(country: str, subdivision: str | None, year: int) -> frozenset[int]:
    """The day numbers (0 is 1970-01-01) of a year's holidays, those observed on another day included.

    Empty for years about which the package knows nothing.
    """
    import holidays

    found = holidays.country_holidays(country, subdiv=subdivision, years=year)
    return frozenset(day.toordinal() - _EPOCH_ORDINAL for day in found)


@cache
def _countries() -> dict[str, list[str]]:
    import holidays

    return holidays.list_supported_countries(include_aliases=False)
