"""What all bodies share: strict types, no unknown fields."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from onbeat.domain.instants import LAST_INSTANT, format_instant


class Body(BaseModel):
    """Something that is sent to us."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)


class View(BaseModel):
    """Something that we answer."""

    model_config = ConfigDict(frozen=True)


def _is_shown(text: str) -> str:
    if not text.strip():
        raise ValueError("must not be blank")
    for character in text:
        if ord(character) < 32 or 0x7F <= ord(character) < 0xA0:
            raise ValueError(f"must not contain the control character U+{ord(character):04X}")
    return text


def _has_no_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError("must not contain U+0000")
    return text


Name = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(_is_shown)]
Key = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,127}$", max_length=128)]
QueueName = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,127}$", max_length=128)]
Tag = Annotated[str, Field(min_length=1, max_length=64), AfterValidator(_is_shown)]
Text = Annotated[str, AfterValidator(_has_no_nul)]


def moment(instant: int | None) -> str | None:
    """RFC 3339 for people. A moment outside the years 1970 to 9999, which only a hand can have written, is none."""
    return None if instant is None or not 0 <= instant <= LAST_INSTANT else format_instant(instant)
