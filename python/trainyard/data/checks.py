"""Arguments that are not what they should be, told by their names."""
from __future__ import annotations

import operator
from typing import Any

from ..errors import InvalidArgument


def check_choice(what: str, value: str, known: tuple[str, ...]) -> None:
    """InvalidArgument, with what is known, unless `value` is among it."""
    if value not in known:
        raise InvalidArgument(f"{what} '{value}' is none of {', '.join(known)}")


def whole_number(what: str, value: Any, low: int, high: int = 2**62) -> int:
    """`value` as an int; InvalidArgument unless it is a whole number in low..high."""
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidArgument(f"{what} {value!r} is no whole number") from None
    if not low <= number <= high:
        limit = f"at least {low}" if high == 2**62 else f"in {low}..{high}"
        raise InvalidArgument(f"{what} {number} is not {limit}")
    return number
