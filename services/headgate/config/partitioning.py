"""``partition_by``: how the tables of a lake are divided, as Spark's ``PARTITIONED BY`` has it.

A field is a column, whose values are the partitions, or a transform of one: ``day(created_at)``, ``bucket(16, id)``. A
name that has a comma, a parenthesis, a dot or a quote is written in double quotes.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Final

import msgspec
from pydantic import BeforeValidator

from headgate.config.wording import did_you_mean, nearest
from headgate.records.identifiers import NotAnIdentifierError, parse_identifier

__all__ = [
    "FIELDS_MAX",
    "IDENTITY",
    "TRANSFORMS",
    "PartitionBy",
    "PartitionField",
    "instead_of_transform",
    "partition_fields",
    "shown_fields",
]

FIELDS_MAX: Final = 4
"""Each commit writes a file for each combination of values that it has rows of, and four fields multiply already."""

WIDTH_MAX: Final = 2**31 - 1
"""Iceberg's own: a bucket's number, and a width, are an int."""

IDENTITY: Final = "identity"
_TIMES: Final = ("year", "month", "day", "hour")
_NUMBERED: Final = {"bucket": "16", "truncate": "10"}
"""Transforms with a number → one to show."""

TRANSFORMS: Final = (*_TIMES, *_NUMBERED)
"""Those that are written; identity is the column alone."""

_COMPUTED: Final = {
    "year": "CAST(EXTRACT(year FROM {column}) AS INTEGER)",
    "month": "CAST(DATE_TRUNC('month', {column}) AS DATE)",
    "day": "CAST({column} AS DATE)",
    "truncate": "LEFT({column}, {number})",
}
"""Transform → the expression of a column that has about the same values. Partitions of an hour are many and small."""

_FORMS: Final = "a column, year(c), month(c), day(c), hour(c), bucket(16, c) or truncate(10, c)"
_NAME: Final = r'"(?:[^"]|"")+"|[^\s(),."]+'
_FIELD: Final = re.compile(
    rf"(?P<plain>{_NAME})|(?P<transform>\w+)\s*\(\s*(?:(?P<number>\d+)\s*,\s*)?(?P<column>{_NAME})\s*\)"
)
_SEPARATORS: Final = re.compile(r'[",()]')
_SWAPPED: Final = re.compile(rf"(?P<transform>\w+)\s*\(\s*(?P<column>{_NAME})\s*,\s*(?P<number>\d+)\s*\)")


class PartitionField(msgspec.Struct, frozen=True):
    """One field. ``transform``: IDENTITY or one of TRANSFORMS. ``number``: of buckets, or the width."""

    column: str
    transform: str = IDENTITY
    number: int | None = None

    @property
    def text(self) -> str:
        """As people write it."""
        name = self.column
        if re.fullmatch(r'[^\s(),."]+', name) is None:
            name = '"' + name.replace('"', '""') + '"'
        if self.transform == IDENTITY:
            return name
        return f"{self.transform}({name})" if self.number is None else f"{self.transform}({self.number}, {name})"


def partition_fields(texts: Iterable[str]) -> tuple[PartitionField, ...]:
    """The fields, outermost first. Raises ValueError."""
    fields = tuple(map(_field, texts))
    _check(fields)
    return fields


def _written(given: object) -> tuple[str, ...]:
    """A list of texts, or one text, as the fields that it has.

    YAML divides ``[bucket(16, id)]`` at the comma, so the texts of a list are joined before they are divided.
    """
    texts = [given] if isinstance(given, str) else given
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"write a list, like [day(created_at), region]. Each entry is {_FORMS}")
    return tuple(field.text for field in partition_fields(_pieces(",".join(texts)) if texts else ()))


def _pieces(text: str) -> Iterator[str]:
    """What is between commas that are in no parentheses and in no quotes. Two quotes for one end and begin a name."""
    begin, depth, is_quoted = 0, 0, False
    for found in _SEPARATORS.finditer(text):
        sign = found[0]
        if sign == '"':
            is_quoted = not is_quoted
        elif not is_quoted and sign == ",":
            if depth == 0:
                yield text[begin : found.start()]
                begin = found.end()
        elif not is_quoted:
            depth = max(0, depth + (1 if sign == "(" else -1))
    yield text[begin:]


PartitionBy = Annotated[tuple[str, ...], BeforeValidator(_written)]
"""The fields in their one spelling; none: the table is not divided. People write a list, or a text with commas."""


def instead_of_transform(field: PartitionField) -> str:
    """What to do where tables can be partitioned by columns only."""
    form = _COMPUTED.get(field.transform)
    if form is None:
        return "Partition by a column with few values"
    name, text = f"{field.column}_{field.transform}", form.format(column=field.column, number=field.number)
    return f'Compute a column and partition by it: columns.set: {{{name}: "{text}"}}, partition_by: [{name}]'


def _field(text: str) -> PartitionField:
    text = text.strip()
    if not text:
        raise ValueError(f"it has an empty field. Remove it, or write [] for no partitions. A field is {_FORMS}")
    found = _FIELD.fullmatch(text)
    if found is None:
        swapped = _SWAPPED.fullmatch(text)
        hint = f". Write {swapped['transform']}({swapped['number']}, {swapped['column']})" if swapped else ""
        raise ValueError(f"{text!r} is not {_FORMS}{hint}")
    try:
        (column,) = parse_identifier(found["plain"] or found["column"])
    except (NotAnIdentifierError, ValueError):
        raise ValueError(f"{text!r} does not name one column. Put a name with a dot in double quotes") from None
    if found["plain"]:
        return PartitionField(column)
    return _transformed(text, found["transform"], found["number"], column)


def _transformed(text: str, name: str, number: str | None, column: str) -> PartitionField:
    if name == IDENTITY and number is None:
        return PartitionField(column)
    if name not in TRANSFORMS:
        said = (f"{name} in {text!r} is not a transform.", did_you_mean(nearest(name, TRANSFORMS), begins=True))
        raise ValueError(" ".join(filter(None, (*said, f"A field is {_FORMS}"))))
    if name in _TIMES and number is not None:
        raise ValueError(f"{text!r}: {name} takes a column only. Write {name}({column})")
    if name in _NUMBERED and number is None:
        raise ValueError(f"{text!r}: {name} takes a number and a column. Write {name}({_NUMBERED[name]}, {column})")
    width = None if number is None else int(number)
    if width is not None and not 0 < width <= WIDTH_MAX:
        raise ValueError(f"{text!r}: the number must be at least 1 and at most {WIDTH_MAX}")
    return PartitionField(column, name, width)


def _check(fields: Sequence[PartitionField]) -> None:
    """Raise ValueError for more fields than there may be, and for two of one column, which pyiceberg cannot write."""
    if len(fields) > FIELDS_MAX:
        raise ValueError(
            f"it has {len(fields)} fields, and at most {FIELDS_MAX} are allowed: a commit writes a file for each "
            "combination of their values. Remove some"
        )
    columns = [field.column.casefold() for field in fields]
    twice = next((field.column for field in fields if columns.count(field.column.casefold()) > 1), None)
    if twice is not None:
        raise ValueError(f"it names column {twice} twice. Keep one of the fields")


def shown_fields(fields: Iterable[PartitionField]) -> str:
    """Fields for people, as in a feed."""
    return f"[{', '.join(field.text for field in fields)}]"
