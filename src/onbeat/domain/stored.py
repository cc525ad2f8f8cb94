"""Reading JSON that the store kept: the one place that knows what a row written by hand can hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from onbeat.domain.errors import DefinitionError

Value = TypeVar("Value")


def read_stored(
    decode: Callable[[str | bytes], Value], text: str | bytes, *, code: str, noun: str, remedy: str
) -> Value:
    """What `decode` makes of `text`. Raises DefinitionError(`code`) about the field `noun` on anything unreadable."""
    try:
        return decode(text)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError) as error:
        raise DefinitionError(code, f"the stored {noun} cannot be read: {error}", field=noun, remedy=remedy) from None
