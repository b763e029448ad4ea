"""The texts that PostgreSQL's types accept unchanged (see relational/forms.py).

Left out is what the server evaluates: ``now`` and ``today``, names of time zones, dates whose order of day and month
depends on DateStyle, numbers in hexadecimal, the prefixes of boolean words, names that stand for an object's number,
networks without all of their digits. ``infinity`` and ``epoch`` are constants.
"""

import re
from typing import Final

from headgate.sinks.relational.forms import (
    CLOCK,
    DECIMALS_ADVICE,
    DIVIDER,
    INTEGER_KEYS,
    IPV4,
    NUMBER,
    NUMBERS,
    UUID_KEYS,
    ZONE,
    TextForm,
    without_base64,
)
from headgate.sinks.relational.text import Room

_LONG_DAY: Final = "(?!0000-)[0-9]{4,7}-(?!00)[0-9]{2}-(?!00)[0-9]{2}"
_INFINITY: Final = "-?(?i:infinity)"
_DATE: Final = f"{_LONG_DAY}(?: BC)?|{_INFINITY}"
_TIMESTAMP: Final = f"{_LONG_DAY}(?:[T ]{CLOCK}Z?)?(?: BC)?|{_INFINITY}"
_TIMESTAMPTZ: Final = f"{_LONG_DAY}(?:[T ]{CLOCK} ?{ZONE}?)?(?: BC)?|{_INFINITY}"

_ISO_INTERVAL: Final = (
    r"P(?=[0-9T+-])(?:[+-]?[0-9]+Y)?(?:[+-]?[0-9]+M)?(?:[+-]?[0-9]+W)?(?:[+-]?[0-9]+D)?"
    r"(?:T(?:[+-]?[0-9]+H)?(?:[+-]?[0-9]+M)?(?:[+-]?[0-9]+(?:\.[0-9]+)?S)?)?"
)
_INTERVAL_ITEM: Final = (
    r"(?:[+-]?[0-9]+ (?:year|mon|month|week|day|hour|minute|min|microsecond)s?"
    r"|[+-]?[0-9]+(?:\.[0-9]+)? (?:second|sec)s?|[+-]?[0-9]+:[0-5][0-9](?::[0-5][0-9](?:\.[0-9]+)?)?)"
)
_INTERVAL: Final = f"{_ISO_INTERVAL}|(?:@ )?{_INTERVAL_ITEM}(?: {_INTERVAL_ITEM})*(?: ago)?|{_INFINITY}"

_IPV6: Final = "[0-9a-fA-F]*:[0-9a-fA-F:.]*"
_OBJECTS: Final = (
    "regclass", "regcollation", "regconfig", "regdictionary", "regnamespace", "regoper", "regoperator", "regproc",
    "regprocedure", "regrole", "regtype",
)  # fmt: skip


def _range(bound: str) -> str:
    quoted = f'(?:"?(?:{bound})"?)?'
    return rf"(?:empty|[\[(]{quoted},{quoted}[\])])"


def _multirange(bound: str) -> str:
    one = _range(bound)
    return rf"\{{(?:{one}(?:, ?{one})*)?\}}"


_INTEGERS: Final = TextForm("[+-]?[0-9]+", "decimal digits")
_FLOATS: Final = TextForm(f"{NUMBER}|(?i:NaN|[+-]?inf(?:inity)?)", "decimal digits, NaN or Infinity", DECIMALS_ADVICE)
_UNSIGNED: Final = TextForm("[0-9]+", "decimal digits without a sign")
_NETWORKS: Final = TextForm(
    f"{IPV4}(?:/[0-9]+)?|{_IPV6}(?:/[0-9]+)?", "an address with all of its parts, with or without a /length"
)
_RANGE_OF_TIMES: Final = "a range whose bounds are written as YYYY-MM-DD or YYYY-MM-DD hh:mm:ss"

_FORMS: Final = {
    **dict.fromkeys(("smallint", "integer", "bigint"), _INTEGERS),
    **dict.fromkeys(("real", "double precision", "numeric"), _FLOATS),
    "money": NUMBERS,
    "boolean": TextForm("(?i:true|false|t|f)|[01]", "true, false, t, f, 1 or 0"),
    "date": TextForm(f"{_DATE}|(?i:epoch)", "a date as YYYY-MM-DD, infinity, -infinity or epoch"),
    "time without time zone": TextForm(f"{CLOCK}Z?", "a time of day as hh:mm:ss"),
    "time with time zone": TextForm(f"{CLOCK} ?{ZONE}?", "a time of day as hh:mm:ss±hh:mm"),
    "timestamp without time zone": TextForm(
        f"{_TIMESTAMP}|(?i:epoch)", "a timestamp as YYYY-MM-DD hh:mm:ss, infinity, -infinity or epoch"
    ),
    "timestamp with time zone": TextForm(
        f"{_TIMESTAMPTZ}|(?i:epoch)", "a timestamp as YYYY-MM-DD hh:mm:ss±hh:mm, infinity, -infinity or epoch"
    ),
    "interval": TextForm(_INTERVAL, "an interval as P1Y2M3DT4H5M6S or 1 year 2 mons 3 days 04:05:06"),
    **dict.fromkeys(("oid", "xid", "xid8", "cid"), _UNSIGNED),
    **dict.fromkeys(
        _OBJECTS, TextForm("[0-9]+", "an object's number, because a name may be another object at the sink")
    ),
    '"char"': TextForm("[\x01-\x7f]?", "one character of ASCII"),
    **dict.fromkeys(("inet", "cidr"), _NETWORKS),
    "macaddr8": TextForm("(?:[0-9a-fA-F]{2}[:.-]?){7}[0-9a-fA-F]{2}", "an address of eight bytes"),
    "daterange": TextForm(_range(_DATE), _RANGE_OF_TIMES),
    "tsrange": TextForm(_range(_TIMESTAMP), _RANGE_OF_TIMES),
    "tstzrange": TextForm(_range(_TIMESTAMPTZ), _RANGE_OF_TIMES),
    "datemultirange": TextForm(_multirange(_DATE), _RANGE_OF_TIMES),
    "tsmultirange": TextForm(_multirange(_TIMESTAMP), _RANGE_OF_TIMES),
    "tstzmultirange": TextForm(_multirange(_TIMESTAMPTZ), _RANGE_OF_TIMES),
}

_NUMBERS: Final = frozenset({"smallint", "integer", "bigint", "real", "double precision", "numeric", "money"})

_KEY_FORMS: Final = {
    **dict.fromkeys(("smallint", "integer", "bigint"), INTEGER_KEYS),
    **dict.fromkeys(
        ("oid", "xid", "xid8", "cid", *_OBJECTS), TextForm("0|[1-9][0-9]*", "digits without leading zeros")
    ),
    "boolean": TextForm("true|false", "true or false, as part of a key"),
    "uuid": UUID_KEYS,
    "macaddr": TextForm("[0-9a-f]{2}(?::[0-9a-f]{2}){5}", "an address as 08:00:2b:01:02:03, as part of a key"),
    "macaddr8": TextForm("[0-9a-f]{2}(?::[0-9a-f]{2}){7}", "an address as 08:00:2b:01:02:03:04:05, as part of a key"),
}
"""For types that read several texts as one value: the text that the type itself prints."""

_EXACT: Final = frozenset(
    {
        "bigint", "bit", "bit varying", "boolean", "bpchar", "bytea", '"char"', "character", "character varying",
        "date", "double precision", "integer", "macaddr", "macaddr8", "name", "numeric", "oid", "real",
        "smallint", "text", "uuid", "xid8",
    }
)  # fmt: skip
_TYPE: Final = re.compile(r"(?P<head>[^(\[]*?) ?(?:\([^)]*\)(?P<tail>[^\[]*))?(?:\[\])*")

_CLOCK_WORDS: Final = "now|today|tomorrow|yesterday|allballs"

CONTAINER_FORM: Final = TextForm(
    rf"(?![^{DIVIDER}]*\b(?i:{_CLOCK_WORDS})\b)[^{DIVIDER}]*",
    "dates and times in digits, and none of the words now, today, tomorrow, yesterday and allballs",
)
"""Of composite types, of user-defined ranges, and of others whose parts are dates or times."""

_NAME_BYTES: Final = 63


def keeps_keys(declared: str) -> bool:
    """Whether a column of this type tells apart all keys that it is sent.

    A key that it would take for another one is refused before it is sent. Of any other type the text that was sent is
    compared with the text of the stored key.
    """
    found = _TYPE.fullmatch(declared)
    kind = declared if found is None else f"{found['head']}{found['tail'] or ''}"
    return declared.endswith("[]") or kind in _EXACT or kind.startswith(("time ", "timestamp ", "interval"))


def form_of(kind: str, *, in_key: bool, may_be_bytes: bool = False) -> TextForm | None:
    """The form of a type without its modifier; None where the server refuses what it does not take as it is.

    ``may_be_bytes``: see relational.text. A number's digits are then refused if they may be bytes.
    """
    if kind.startswith("interval"):
        kind = "interval"
    form = (_KEY_FORMS.get(kind) if in_key else None) or _FORMS.get(kind)
    return without_base64(form) if form is not None and may_be_bytes and kind in _NUMBERS else form


def room_of(kind: str, modifier: int | None) -> Room | None:
    """How long the texts of a type may be, where the server cuts off what is beyond it."""
    if kind in ("character varying", "character") and modifier is not None:
        return Room(characters=modifier)
    return Room(octets=_NAME_BYTES) if kind == "name" else None
