"""Decimals that a connector writes as bytes (decimal.handling.mode=precise, Debezium's default), in base64.

Without a schema an event does not show whether ``1234`` is a number or three bytes.
"""

import binascii
from typing import Final

from headgate.formats.connectors import is_of_debezium

__all__ = ["BASE64_DIGITS", "UNSIGNED_DIGITS", "is_base64", "may_be_bytes"]

UNSIGNED_DIGITS: Final = 20
"""Digits before the point that the largest ``bigint unsigned`` has, 2^64 - 1."""

BASE64_DIGITS: Final = "(?:[0-9eE+]{4})+"
"""The numbers among the texts that ``is_base64``, as a pattern: a point and a minus are not letters of base64."""


def may_be_bytes(meaning: str | None, connector: str | None, decimals: str | None) -> bool:
    """Whether a number's text may be bytes. ``decimals``: the feed's ``source.decimal_handling_mode``."""
    return meaning is None and decimals != "string" and is_of_debezium(connector)


def is_base64(text: str) -> bool:
    """Whether a text may be bytes."""
    try:
        return bool(binascii.a2b_base64(text, strict_mode=True))
    except (ValueError, binascii.Error):
        return False
