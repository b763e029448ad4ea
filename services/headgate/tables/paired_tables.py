"""What a table at the source and one at the sink have in common, so that rows can be copied between them."""

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final

import msgspec

from headgate.config.columns import ColumnOptions
from headgate.config.feed import FeedSpec
from headgate.databases.row_source import KeyForm, RowSource, RowSourceError
from headgate.records.control import SpanPlan
from headgate.records.name_lists import shown_names
from headgate.records.row_copies import RowCopy
from headgate.sources.table_names import named_like, source_table

__all__ = ["PairedTable", "SinkTable", "is_taken", "pair_table", "table_to_copy"]

ALIKE: Final = (
    frozenset({"int2", "int4", "int8", "tinyint", "smallint", "mediumint", "int", "bigint"}),
    frozenset({"text", "varchar", "tinytext", "mediumtext", "longtext"}),
)
"""Types whose values are written as the same text."""

_TEXTS: Final = frozenset({"varchar", "text", "longtext"})
_BLOBS: Final = ("tinyblob", "blob", "mediumblob", "longblob", "binary", "varbinary")

TAKEN_BY: Final[Mapping[str, frozenset[str]]] = {
    "bool": frozenset({"tinyint"}),
    "oid": frozenset({"int"}),
    "numeric": frozenset({"decimal"}),
    "money": frozenset({"decimal"}),
    "float4": frozenset({"float"}),
    "float8": frozenset({"double"}),
    "bpchar": frozenset({"char", "varchar"}),
    "timestamp": frozenset({"datetime", "timestamptz"}),
    "timestamptz": frozenset({"datetime"}),
    "bytea": frozenset({"longblob"}),
    "jsonb": frozenset({"json"}),
    "uuid": _TEXTS | {"char"},  # MariaDB's char drops spaces at the end, which none of these has
    **dict.fromkeys(("inet", "cidr", "macaddr", "macaddr8"), _TEXTS),
    **dict.fromkeys(("int4range", "int8range", "daterange", "tsrange", "tstzrange", "numrange"), _TEXTS),
    "bigint": frozenset({"numeric"}),
    "decimal": frozenset({"numeric"}),
    "float": frozenset({"float4"}),
    "double": frozenset({"float8"}),
    "char": frozenset({"bpchar", "text"}),
    "time": frozenset({"interval"}),
    "datetime": frozenset({"timestamp"}),
    "year": frozenset({"int4"}),
    **dict.fromkeys(("enum", "set"), frozenset({"text"})),
    **dict.fromkeys(_BLOBS, frozenset({"bytea"})),
}
"""Type at one end → types at the other, to which feeds map it, that take its text for the same value.

Other types must be the same at both ends. tests/integration/tables/test_copied_types.py has the extremes of each.
"""


class SinkTable(msgspec.Struct, frozen=True):
    """The sink's table. ``columns``: name → bare type. ``key``: the columns by which the sink finds rows.

    ``equality``: columns → by which rule each treats two texts as one (RowSource.equality). ``takes``: (the source's
    type, the sink's) → whether values are copied from one into the other. ``ignores_case``: columns are found whatever
    the case of their names. ``filled``: columns that the sink fills by itself, as far as nothing shows that the source
    has ever had them.
    """

    name: str
    key: tuple[str, ...]
    columns: Mapping[str, str]
    equality: Callable[[Sequence[str]], tuple[str | None, ...]]
    takes: Callable[[str, str], bool]
    ignores_case: bool = False
    filled: frozenset[str] = frozenset()


class PairedTable(msgspec.Struct, frozen=True):
    """``columns``: the source's name → bare type of each column that goes to the sink. ``key`` has the sink's names.

    ``computed``: columns that the feed computes and the sink has. ``doubts``: what a user should know, as sentences.
    """

    columns: dict[str, str]
    computed: tuple[str, ...]
    key: tuple[str, ...]
    source_key: tuple[str, ...]
    forms: tuple[KeyForm, ...]
    doubts: tuple[str, ...] = ()


def table_to_copy(spec: FeedSpec, plan: SpanPlan, source: RowSource, said: Callable[[str], str | None]) -> str:
    """The source's table of ``plan``. ``said``: topic → the table that its events name. Raises RowSourceError."""
    table = source_table(spec, plan.table, plan.topic, has=lambda name: bool(source.columns(name)), said=said)
    if table is None or not source.columns(table):
        raise RowSourceError(
            f"the source has no table {table or named_like(plan.topic)}, or its user may not see it. Grant SELECT on it"
        )
    return table


def pair_table(source: RowSource, table: str, sink: SinkTable, shape: ColumnOptions, rows: RowCopy) -> PairedTable:
    """What of ``table``, which is the source's, is copied. Raises RowSourceError where rows cannot be copied."""
    ours = source.logged(table)
    own = _own_names(sink, ours, shape)
    doubts = _check_complete(sink, ours, own, shape)
    columns = _common(sink, ours, own, shape)
    key = _key(sink, rows, own)
    source_key = tuple(own[column] for column in key)
    forms = source.key_forms(table, source_key)
    if rows.keys is None and rows.delete:
        _check_equality(sink.name, key, forms, source.equality(table, source_key), sink.equality(key))
    computed = tuple(name for name in shape.set if name in sink.columns)
    return PairedTable(columns, computed, key, source_key, forms, doubts)


def _check_equality(
    table: str,
    key: tuple[str, ...],
    forms: tuple[KeyForm, ...],
    source: tuple[str | None, ...],
    sink: tuple[str | None, ...],
) -> None:
    """Raise RowSourceError unless both ends agree on which texts are one key: a row could be deleted as another one."""
    for column, form, here, there in zip(key, forms, source, sink, strict=True):
        if form is KeyForm.TEXT and here != there:
            raise RowSourceError(
                f"column {column} of {table} is compared by collation {here or '(exact)'} at the source and by "
                f"{there or '(exact)'} at the sink, so a row could be deleted as another one. Copy without --delete"
            )


def _key(sink: SinkTable, rows: RowCopy, columns: Collection[str]) -> tuple[str, ...]:
    """The columns by which rows are named. Raises RowSourceError unless they are those that the sink finds rows by.

    ``columns``: those that both ends have, by the sink's names.
    """
    table, key = sink.name, rows.columns or sink.key
    if not sink.key and rows.keys is None:
        raise RowSourceError("the sink's table has no key, by which its rows could be found and copied in ranges")
    if not sink.key or set(key) != set(sink.key):
        found_by = ", ".join(sink.key) or "nothing, because it has no key"
        raise RowSourceError(f"rows were named by {', '.join(key)}, and the sink finds them by {found_by}")
    if missing := [column for column in key if column not in columns]:
        raise RowSourceError(f"the source's table does not have the key's column {', '.join(missing)} of {table}")
    if any(len(one) != len(key) for one in rows.keys or ()):
        raise RowSourceError(f"each key must have {len(key)} values: {', '.join(key)}")
    return key


def _own_names(sink: SinkTable, source: Mapping[str, str], shape: ColumnOptions) -> dict[str, str]:
    """The sink's name of each column that both ends have → the source's."""
    found = {
        target: column for column in source if shape.goes(column) and (target := shape.target(column)) in sink.columns
    }
    if sink.ignores_case:
        folded = {name.lower(): name for name in sink.columns if name not in found}
        others = [column for column in source if shape.goes(column) and shape.target(column) not in sink.columns]
        alike = Counter(shape.target(column).lower() for column in others)
        for column in others:
            lower = shape.target(column).lower()
            if lower in folded and alike[lower] == 1:
                found[folded[lower]] = column
    return found


def _check_complete(
    sink: SinkTable, source: Mapping[str, str], own: Mapping[str, str], shape: ColumnOptions
) -> tuple[str, ...]:
    """Raise RowSourceError where a column of the sink would be NULL in copied rows, because the source has renamed it.

    A column that the source has dropped stays at the sink without values, as in changes. One that the sink fills is
    its own, such as the time at which a row was loaded: that is only a doubt.
    """
    gone = [name for name in sink.columns if name not in {*own, *source, *shape.set}]
    wanted = [column for column in shape.include or () if shape.goes(column) and shape.target(column) in gone]
    if wanted:
        raise RowSourceError(
            f"columns.include names {shown_names(wanted)}, which the source's table does not have. Put its new name "
            "into columns.include (columns.rename keeps its name at the sink), or remove it if the source has dropped "
            "it"
        )
    there = set(own.values())
    fresh = [column for column in source if shape.goes(column) and column not in there]
    doubts: list[str] = []
    for name in gone:
        alike = [column for column in fresh if sink.takes(source[column], sink.columns[name])]
        if alike and name in sink.filled:
            doubts.append(
                f"column {name} gets its default, and {shown_names(alike)} of the source is not copied, because the "
                f"sink does not have it. If it was renamed, rename {name} at the sink, too, and copy the rows again"
            )
        elif alike:
            raise RowSourceError(
                f"the sink has column {name}, which the source does not have, and the source has {shown_names(alike)}, "
                f"which the sink does not have. If it was renamed, rename {name} at the sink, too. Otherwise add "
                f"{shown_names(alike)} at the sink, or leave it out (columns.exclude). Copied rows would lack values"
            )
    return tuple(doubts)


def _common(sink: SinkTable, source: Mapping[str, str], own: Mapping[str, str], shape: ColumnOptions) -> dict[str, str]:
    """Columns that go to the sink and that it has, with the source's types.

    Raises RowSourceError for a type that has other texts.
    """
    at_sink = {column: sink.columns[name] for name, column in own.items()}
    common = {column: kind for column, kind in source.items() if column in at_sink}
    for column, kind in common.items():
        if column in shape.mask:
            continue
        if not sink.takes(kind, at_sink[column]):
            raise RowSourceError(
                f"column {column} of {sink.name} is of type {kind} at the source and {at_sink[column]} at the sink, "
                "and values are not copied between these types. Leave the column out (columns: exclude), or the table "
                "(snapshot: never)"
            )
    return common


def is_taken(kind: str, other: str) -> bool:
    """Whether a column of type ``other`` takes the text of a value of type ``kind`` for the same value."""
    return kind == other or other in TAKEN_BY.get(kind, ()) or any({kind, other} <= alike for alike in ALIKE)
