"""The texts that MySQL's and MariaDB's types accept unchanged (see relational/forms.py).

Left out is what the servers complete or look up: years of two digits, ``12`` for a time of twelve seconds, dates with
any sign between their parts, numbers for labels of an enum or a set, spaces around numbers.
"""

import re
from typing import Final

from headgate.sinks.relational.forms import CLOCK, DAY, INTEGER_KEYS, IPV4, NUMBERS, UUID_KEYS, TextForm, without_base64
from headgate.sinks.relational.text import Room

_INTEGERS: Final = ("tinyint", "smallint", "mediumint", "int", "bigint")
_NUMBERS: Final = (*_INTEGERS, "decimal", "float", "double")
_TIMESTAMPS: Final = TextForm(f"{DAY}(?: {CLOCK})?", "a timestamp as YYYY-MM-DD hh:mm:ss")

_FORMS: Final = {
    **dict.fromkeys(_NUMBERS, NUMBERS),
    "year": TextForm("[0-9]{4}", "a year of four digits"),
    "date": TextForm(DAY, "a date as YYYY-MM-DD"),
    "datetime": _TIMESTAMPS,
    "timestamp": _TIMESTAMPS,
    "time": TextForm(r"-?[0-9]{2,3}:[0-5][0-9](?::[0-5][0-9](?:\.[0-9]+)?)?", "a time as hh:mm:ss"),
    "inet4": TextForm(IPV4, "an IPv4 address with all of its parts"),
    "inet6": TextForm("[0-9a-fA-F]*:[0-9a-fA-F:.]*", "an IPv6 address"),
}
_KEY_FORMS: Final = {
    **dict.fromkeys(_INTEGERS, INTEGER_KEYS),
    "uuid": UUID_KEYS,
    "inet6": TextForm("[0-9a-f]*:[0-9a-f:.]*", "an IPv6 address in lower case, as part of a key"),
}
"""For types that read several texts as one value: the text that the type itself prints."""

_OCTETS: Final = {"tinytext": 255, "text": 65_535, "mediumtext": 16_777_215}
_LENGTH: Final = re.compile(r"\((\d+)\)")


def form_of(kind: str, *, in_key: bool, may_be_bytes: bool = False) -> TextForm | None:
    """The form of a type; None where the server refuses what it does not take as it is.

    ``may_be_bytes``: see relational.text. A number's digits are then refused if they may be bytes.
    """
    form = (_KEY_FORMS.get(kind) if in_key else None) or _FORMS.get(kind)
    return without_base64(form) if form is not None and may_be_bytes and kind in _NUMBERS else form


def room_of(kind: str, declared: str, charset: str | None) -> Room | None:
    """How long the texts of a column may be: the servers cut off spaces beyond it without an error."""
    length = _LENGTH.search(declared)
    if kind in ("char", "varchar") and length is not None:
        return Room(characters=int(length[1]))
    if kind in _OCTETS and charset is not None and charset.startswith("utf8"):
        return Room(octets=_OCTETS[kind])
    return None
