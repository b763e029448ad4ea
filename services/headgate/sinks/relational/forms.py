r"""The texts that a column accepts unchanged, by its type.

A database reads more texts than its types print: PostgreSQL takes ``now`` for a date and ``0x1F`` for a number, MySQL
takes ``12`` for a time and ``26-2-3`` for a date. Such a text would arrive as another value, or as another one each
time it is written, or as what the session's settings make of it. So a column takes the texts of its *form*, and every
other text of an event is refused before the server sees it. Numbers of an event are written by us, in forms the server
cannot misread.

A form is a regular expression of one text. It may not match across ``DIVIDER``, because a whole column is searched at
once for a text that does not fit.
"""

import re
from functools import lru_cache
from typing import Final

import msgspec

from headgate.formats.decimal_bytes import BASE64_DIGITS

NULL_MARK: Final = "\x1e"
"""Stands for NULL while a column is searched."""
DIVIDER: Final = "\x1f"
"""Separates the texts of a column while it is searched."""

DAY: Final = "(?!0000)[0-9]{4}-(?!00)[0-9]{2}-(?!00)[0-9]{2}"
CLOCK: Final = r"[0-9]{2}:[0-5][0-9](?::[0-5][0-9](?:\.[0-9]+)?)?"
ZONE: Final = "(?:Z|[+-][0-9]{2}(?::?[0-9]{2})?(?::?[0-9]{2})?)"
NUMBER: Final = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?"
IPV4: Final = r"[0-9]{1,3}(?:\.[0-9]{1,3}){3}"


class TextForm(msgspec.Struct, frozen=True):
    """``pattern`` matches a text that is taken as it is; ``expected`` describes such a text for people.

    ``advice`` is what to do about another text.
    """

    pattern: str
    expected: str
    advice: str = "Correct it at the source, or give the column a text type"

    def takes(self, text: str) -> bool:
        """Whether the server reads the text as the value that it is."""
        return _one(self.pattern).fullmatch(text) is not None

    def takes_all(self, column: str) -> bool:
        """The same for texts that are joined by DIVIDER, with NULL_MARK for those that are NULL."""
        return _misfit(self.pattern).search(DIVIDER + column) is None


DECIMALS_ADVICE: Final = (
    "If it is a decimal in base64, set decimal.handling.mode=string at the connector or let its events have a schema. "
    "Otherwise correct it at the source, or give the column a text type"
)
_DIGITS_ADVICE: Final = (
    "Set source.decimal_handling_mode: string in the feed if that is the connector's decimal.handling.mode. Otherwise "
    "set it at the connector, or let its events have a schema"
)
NUMBERS: Final = TextForm(NUMBER, "decimal digits, with a point and an exponent if there is one", DECIMALS_ADVICE)
INTEGERS: Final = TextForm("0|-?[1-9][0-9]*", "an integer without sign +, leading zeros or spaces")
INTEGER_KEYS: Final = TextForm(INTEGERS.pattern, f"{INTEGERS.expected}, as part of a key")
UUID_KEYS: Final = TextForm(
    "[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", "a UUID in lower case with hyphens, as part of a key"
)


@lru_cache
def without_base64(form: TextForm) -> TextForm:
    """A number's form without the texts that are base64, too: an event without a schema may have a decimal's bytes."""
    return TextForm(
        rf"(?!{BASE64_DIGITS}(?:{DIVIDER}|\Z))(?:{form.pattern})",
        f"{form.expected}, but not digits that may be a decimal in base64 (four, eight, … without a point and a minus)",
        _DIGITS_ADVICE if form.advice is DECIMALS_ADVICE else f"{_DIGITS_ADVICE}. {form.advice}",
    )


@lru_cache
def _one(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern, re.ASCII)


@lru_cache
def _misfit(pattern: str) -> re.Pattern[str]:
    return re.compile(f"{DIVIDER}(?!(?:{pattern}|{NULL_MARK})(?:{DIVIDER}|\\Z))", re.ASCII)
