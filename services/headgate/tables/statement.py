"""The CREATE TABLE for one table of a source: columns, NOT NULL, primary key, constant defaults and comments.

Unique keys are created only if the feed asks for it. Left out are foreign keys, checks, other indexes, triggers,
identity columns and partitions: rows arrive in the order of their own keys, not in that of transactions, and every
value comes from the source.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from headgate.databases.catalogue import Product
from headgate.databases.mysql import sql as mysql
from headgate.databases.mysql.catalogue import MysqlColumn, MysqlDefinition, MysqlKey
from headgate.databases.mysql.types import MysqlType
from headgate.databases.mysql.types import parse_type as parse_mysql
from headgate.databases.postgresql import sql as postgresql
from headgate.databases.postgresql.catalogue import EnumType, PostgresColumn, PostgresDefinition
from headgate.databases.postgresql.types import PostgresType
from headgate.databases.postgresql.types import parse_type as parse_postgresql
from headgate.records.identifiers import table_spelling
from headgate.tables.constants import default_text
from headgate.tables.mapped import LeftOut, Mapped, Outcome, Unmapped
from headgate.tables.mysql_to_mysql import same_type
from headgate.tables.mysql_to_postgresql import to_postgresql as from_mysql
from headgate.tables.names import name_problem
from headgate.tables.postgresql_to_mysql import EXACT, to_mysql
from headgate.tables.postgresql_to_postgresql import to_postgresql
from headgate.tables.unique_keys import KEY_BYTES_MAX, NO_INDEX, creatable_keys, key_bytes, left_out_keys

__all__ = [
    "CreateTable",
    "Definition",
    "Refusal",
    "RefusedTable",
    "by_reason",
    "comment_of",
    "notes_of",
    "outcomes_of",
    "room_of",
    "table_statement",
]

Definition = PostgresDefinition | MysqlDefinition

_COMMENT_CHARACTERS_MAX: Final = {"column": 1_024, "table": 2_048}
"""Of MySQL and MariaDB."""


class Refusal(msgspec.Struct, frozen=True):
    """Why a table is not created. ``column``: the one that it is about; ``instead``: a type that may be chosen."""

    reason: str
    column: str | None = None
    instead: str = ""


class CreateTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table's statements, without semicolons: the CREATE TABLE first, then those of comments.

    Of its columns those that the sink computes are not listed.

    ``needs``: enums that must exist before. ``notes``: what the table does not have of the source's.
    ``columns``: name → the source's type, ``types``: name → the bare name of its own. ``key``: the primary key's
    columns. ``defaults``: columns that may be NULL and have a default at the source.
    ``altered``: values that the connector changes, without an error → the columns that may have some.
    """

    name: str
    schema: str
    statements: tuple[str, ...]
    columns: Mapping[str, str] = {}
    types: Mapping[str, str] = {}
    key: tuple[str, ...] = ()
    defaults: tuple[str, ...] = ()
    needs: tuple[EnumType, ...] = ()
    notes: tuple[str, ...] = ()
    altered: Mapping[str, Sequence[str]] = {}


class RefusedTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table that cannot be created, and every reason."""

    name: str
    refusals: tuple[Refusal, ...]


class _Column(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    mapped: Mapped
    default: str | None
    is_nullable: bool
    comment: str | None


def table_statement(
    table: Definition, sink: Product, overrides: Mapping[str, str] | None = None, *, unique_keys: bool = False
) -> CreateTable | RefusedTable:
    """The statement for the sink. Pure.

    ``overrides``: column → the type that the user has chosen for it. ``unique_keys``: whether the table gets those of
    the source, as far as the sink can have them.
    """
    name = table_spelling(table.schema, table.table)
    refusals: list[Refusal] = [
        Refusal(problem) for part in (table.schema, table.table) if (problem := name_problem(part, sink))
    ]
    outcomes = outcomes_of(table, sink, overrides or {})
    refusals += _column_refusals(outcomes, sink)
    kept = [
        _column(table, column, outcome, sink)
        for column in table.form.columns
        if isinstance(outcome := outcomes[column.name], Mapped)
    ]
    columns = {column.name: column.mapped for column in kept}
    refusals += _key_refusals(table, columns)
    refusals += [
        Refusal("the table does not have this column", column) for column in overrides or {} if column not in outcomes
    ]
    if not kept and not refusals:
        refusals.append(Refusal("no column of it is captured"))
    if refusals:
        return RefusedTable(name=name, refusals=tuple(refusals))
    build = _postgresql if sink is Product.POSTGRESQL else _mysql
    keys = creatable_keys(table, columns) if unique_keys else []
    there = [each for each in table.form.columns if each.name in columns and columns[each.name].generated is None]
    return CreateTable(
        name=name,
        schema=table.schema,
        statements=tuple(build(table, kept, keys)),
        columns={column.name: column.type for column in there},
        types={column.name: columns[column.name].type.name for column in there},
        key=() if table.form.primary is None else tuple(table.form.primary.columns),
        defaults=tuple(column.name for column in there if column.is_nullable and column.default is not None),
        needs=tuple(dict.fromkeys(column.mapped.needs for column in kept if column.mapped.needs is not None)),
        notes=(*notes_of(table, outcomes), *(left_out_keys(table, columns) if unique_keys else ())),
        altered=by_reason((column.mapped.altered, column.name) for column in kept),
    )


def outcomes_of(table: Definition, sink: Product, overrides: Mapping[str, str]) -> dict[str, Outcome]:
    """What becomes of each of the table's columns. ``overrides``: as of ``table_statement``."""
    found = _mapped(table, sink)
    return found | {name: _chosen(text, sink, found[name]) for name, text in overrides.items() if name in found}


def _mapped(table: Definition, sink: Product) -> dict[str, Outcome]:
    """By the mapper of this pair of databases."""
    if isinstance(table, PostgresDefinition):
        enums = table.enums
        if sink is Product.POSTGRESQL:
            return {column.name: to_postgresql(column, enums.get(column.name)) for column in table.form.columns}
        return {column.name: to_mysql(column, enums.get(column.name), sink) for column in table.form.columns}
    if sink is Product.POSTGRESQL:
        return {column.name: from_mysql(column) for column in table.form.columns}
    return {column.name: same_type(column, table.product, sink) for column in table.form.columns}


def _chosen(text: str, sink: Product, mapped: Outcome) -> Outcome:
    """The user's type, taken apart and built again like any other. ``mapped``: what the mapper would take."""
    altered = mapped.altered if isinstance(mapped, Mapped) else ""
    if sink is Product.POSTGRESQL:
        found: PostgresType | MysqlType | None = parse_postgresql(text.strip().lower())
    else:
        name, quote, labels = text.strip().partition("'")
        found = parse_mysql(f"{name.lower()}{quote}{labels}", *EXACT[sink])
    return (
        Unmapped(f"{text!r} is not a type that Headgate can create")
        if found is None
        else Mapped(type=found, altered=altered)
    )


def _column_refusals(outcomes: Mapping[str, Outcome], sink: Product) -> Iterator[Refusal]:
    for name, outcome in outcomes.items():
        if isinstance(outcome, Unmapped):
            yield Refusal(outcome.reason, name, outcome.instead)
        elif isinstance(outcome, LeftOut) and (reason := outcome.refusal(name)) is not None:
            yield Refusal(reason, name)
        elif isinstance(outcome, Mapped) and (problem := name_problem(name, sink, is_column=True)):
            yield Refusal(problem, name)
    if sink is not Product.POSTGRESQL:
        folded = Counter(name.casefold() for name in outcomes)
        for name in outcomes:
            if folded[name.casefold()] > 1:
                yield Refusal("another column has the same name but for upper and lower case", name)


def _key_refusals(table: Definition, columns: Mapping[str, Mapped]) -> Iterator[Refusal]:
    key = table.form.primary
    if key is None:
        return
    if isinstance(key, MysqlKey) and key.prefixed:
        yield Refusal("the primary key has only the beginnings of its columns' values")
        return
    types = {name: columns[name].type for name in key.columns if name in columns}
    for name, found in types.items():
        if isinstance(found, MysqlType) and found.name in NO_INDEX:
            chosen = "varbinary(255)" if "blob" in found.name else "varchar(255)"
            yield Refusal(f"a {found.name} cannot be in a primary key", name, chosen)
    size = key_bytes(list(types.values()))
    if size > KEY_BYTES_MAX:
        yield Refusal(f"the primary key's texts have up to {size} bytes, and a key has at most {KEY_BYTES_MAX}")


def _column(table: Definition, column: PostgresColumn | MysqlColumn, mapped: Mapped, sink: Product) -> _Column:
    literal = postgresql.literal if sink is Product.POSTGRESQL else mysql.literal
    return _Column(
        name=column.name,
        mapped=mapped,
        default=default_text(column.default, table.product, mapped.default, literal, room=room_of(mapped)),
        is_nullable=column.is_nullable,
        comment=comment_of(table.comments.get(column.name), sink, "column"),
    )


def room_of(mapped: Mapped) -> int | None:
    """How many characters a text of MySQL holds, None if unknown."""
    found = mapped.type
    return found.numbers[0] if isinstance(found, MysqlType) and found.is_text and found.numbers else None


def comment_of(text: str | None, sink: Product, of: str) -> str | None:
    """The comment, as far as the sink takes one: PostgreSQL no NUL, MySQL no long one."""
    if text is None:
        return None
    text = text.replace("\0", "")
    return text if sink in (Product.POSTGRESQL, Product.LAKE) else text[: _COMMENT_CHARACTERS_MAX[of]]


def notes_of(table: Definition, outcomes: Mapping[str, Outcome]) -> tuple[str, ...]:
    """What the sink's table does not have of the source's."""
    return tuple(_notes(table, outcomes))


def _notes(table: Definition, outcomes: Mapping[str, Outcome]) -> Iterator[str]:
    columns = {name: outcome for name, outcome in outcomes.items() if isinstance(outcome, Mapped)}
    if table.unknown:
        yield table.unknown
    for name, outcome in outcomes.items():
        if isinstance(outcome, LeftOut):
            yield f"column {name} is left out: {outcome.reason}"
    computed = {name for name in table.form.generated & columns.keys() if columns[name].generated is None}
    if computed:
        yield f"computed at the source, and ordinary here: {', '.join(sorted(computed))}"
    for lacks, names in by_reason((mapped.lacks, name) for name, mapped in columns.items()).items():
        yield f"refused at the sink, with an error: {lacks} in {', '.join(names)}"
    for altered, names in by_reason((mapped.altered, name) for name, mapped in columns.items()).items():
        yield f"changed by the connector, without an error: {altered} in {', '.join(names)}"


def by_reason(reasons: Iterable[tuple[str, str]]) -> dict[str, list[str]]:
    """Reason → the columns that have it, without those that have none."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for reason, column in reasons:
        if reason:
            found[reason].append(column)
    return dict(found)


def _postgresql(table: Definition, columns: Sequence[_Column], keys: Sequence[Sequence[str]]) -> Iterator[str]:
    target = postgresql.quoted(table.schema, table.table)
    lines = [
        f"{postgresql.quoted(column.name)} {column.mapped.type.sql}"
        + ("" if column.default is None else f" DEFAULT {column.default}")
        + ("" if column.mapped.generated is None else f" GENERATED ALWAYS AS ({column.mapped.generated}) STORED")
        + ("" if column.is_nullable else " NOT NULL")
        for column in columns
    ]
    if table.form.primary is not None:
        lines.append(f"PRIMARY KEY ({', '.join(map(postgresql.quoted, table.form.primary.columns))})")
    lines += [f"UNIQUE ({', '.join(map(postgresql.quoted, key))})" for key in keys]
    yield f"CREATE TABLE IF NOT EXISTS {target} (\n  " + ",\n  ".join(lines) + "\n)"
    comment = comment_of(table.comment, Product.POSTGRESQL, "table")
    if comment:
        yield f"COMMENT ON TABLE {target} IS {postgresql.literal(comment)}"
    for column in columns:
        if column.comment:
            yield f"COMMENT ON COLUMN {target}.{postgresql.quoted(column.name)} IS {postgresql.literal(column.comment)}"


def _mysql(table: Definition, columns: Sequence[_Column], keys: Sequence[Sequence[str]]) -> Iterator[str]:
    lines = [
        f"{mysql.quoted(column.name)} {column.mapped.type.sql}"
        # Without the word NULL an old server makes a timestamp NOT NULL, with the current time as its default.
        + (" NULL" if column.is_nullable else " NOT NULL")
        + ("" if column.default is None else f" DEFAULT {column.default}")
        + (f" COMMENT {mysql.literal(column.comment)}" if column.comment else "")
        for column in columns
    ]
    if table.form.primary is not None:
        lines.append(f"PRIMARY KEY ({', '.join(map(mysql.quoted, table.form.primary.columns))})")
    lines += [f"UNIQUE KEY ({', '.join(map(mysql.quoted, key))})" for key in keys]
    comment = comment_of(table.comment, Product.MARIADB, "table")
    said = f" COMMENT={mysql.literal(comment)}" if comment else ""
    target = mysql.quoted(table.schema, table.table)
    yield f"CREATE TABLE IF NOT EXISTS {target} (\n  " + ",\n  ".join(lines) + f"\n) ENGINE=InnoDB{said}"
