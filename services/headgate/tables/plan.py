"""The statements that create the tables a sink lacks, as one file: what they need comes first. Pure."""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import partial
from shlex import quote
from typing import Final, Protocol

import msgspec

from headgate.databases.catalogue import Product
from headgate.databases.mysql.sql import quoted as mysql_quoted
from headgate.databases.postgresql.catalogue import EnumType
from headgate.databases.postgresql.sql import literal, quoted
from headgate.records.identifiers import show_identifier
from headgate.records.name_lists import shown_names
from headgate.tables.statement import CreateTable, Definition, Refusal, RefusedTable, table_statement

__all__ = [
    "ChosenTypes",
    "Sink",
    "TargetTables",
    "altered_warnings",
    "by_option",
    "needed_first",
    "session_settings",
    "shown_refusals",
    "statements_file",
    "target_tables",
]

ChosenTypes = Mapping[tuple[str, str], Mapping[str, str]]
"""(schema, table) at the sink → column → the type that the user has chosen for it there."""

_SETTINGS: Final = {
    "postgresql": ("SET client_encoding = 'UTF8'",),
    # Literals are written with backslashes.
    "mysql": ("SET NAMES utf8mb4", "SET SESSION sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION'"),
}


class Sink(msgspec.Struct, frozen=True):
    """What a sink is and has. ``schemas``: those that its user can see, or databases of MySQL and MariaDB."""

    product: Product
    schemas: frozenset[str] = frozenset()
    enums: frozenset[EnumType] = frozenset()


class TargetTables(msgspec.Struct, frozen=True):
    """Tables that can be created, tables that cannot, and the statements' file; empty if there are none."""

    created: tuple[CreateTable, ...] = ()
    refused: tuple[RefusedTable, ...] = ()
    text: str = ""


def target_tables(
    definitions: Iterable[Definition],
    sink: Sink,
    types: ChosenTypes,
    *,
    unique_keys: Container[tuple[str, str]] = (),
) -> TargetTables:
    """The plan for these tables, which have the names that they get at the sink.

    ``unique_keys``: (schema, table) of those that get the source's unique keys.
    """
    created: list[CreateTable] = []
    refused: list[RefusedTable] = []
    for definition in definitions:
        place = definition.schema, definition.table
        found = table_statement(definition, sink.product, types.get(place), unique_keys=place in unique_keys)
        other = [] if isinstance(found, RefusedTable) else _other_enums(found, sink)
        if isinstance(found, RefusedTable):
            refused.append(found)
        elif other:
            refused.append(RefusedTable(name=found.name, refusals=tuple(map(_taken, other))))
        else:
            created.append(found)
    return TargetTables(tuple(created), tuple(refused), _text(created, sink) if created else "")


def _other_enums(table: CreateTable, sink: Sink) -> list[EnumType]:
    """Enums that the sink has under the same name, with other labels."""
    there = {(enum.schema, enum.name): enum for enum in sink.enums}
    return [enum for enum in table.needs if there.get((enum.schema, enum.name), enum) != enum]


def _taken(enum: EnumType) -> Refusal:
    return Refusal(f"the sink's enum {show_identifier((enum.schema, enum.name))} has other labels. Alter or rename it")


def _text(tables: Sequence[CreateTable], sink: Sink) -> str:
    return statements_file(tables, (*session_settings(sink.product), *needed_first(tables, sink)))


def statements_file(tables: Iterable[CreateTable], first: Iterable[str] = ()) -> str:
    """The tables' statements for people, and before them ``first``."""
    lines = ["-- Tables that are missing at the sink, written by Headgate."]
    lines += [f"{statement};" for statement in first]
    for table in tables:
        lines += ["", *map(_comment, table.notes), *(f"{statement};" for statement in table.statements)]
    return "\n".join(lines) + "\n"


def session_settings(product: Product) -> tuple[str, ...]:
    """What a session must have set before it runs the statements."""
    return _SETTINGS["postgresql" if product is Product.POSTGRESQL else "mysql"]


class Needs(Protocol):
    """A table whose statements need things that the sink may lack."""

    @property
    def schema(self) -> str:
        """The schema that it is in, or the database of MySQL and MariaDB."""
        ...

    @property
    def needs(self) -> tuple[EnumType, ...]:
        """Enums that must exist before."""
        ...


def needed_first(tables: Sequence[Needs], sink: Sink) -> Iterator[str]:
    """Statements, without semicolons, for the schemas and enums that the tables need and the sink lacks."""
    is_postgresql = sink.product is Product.POSTGRESQL
    enums = dict.fromkeys(enum for table in tables for enum in table.needs if enum not in sink.enums)
    schemas = dict.fromkeys([*(table.schema for table in tables), *(enum.schema for enum in enums)])
    for schema in schemas:
        if schema not in sink.schemas:
            what = f"SCHEMA IF NOT EXISTS {quoted(schema)}"
            yield f"CREATE {what if is_postgresql else f'DATABASE IF NOT EXISTS {mysql_quoted(schema)}'}"
    for enum in enums:
        labels = ", ".join(map(literal, enum.labels))
        yield f"CREATE TYPE {quoted(enum.schema, enum.name)} AS ENUM ({labels})"


def _comment(note: str) -> str:
    """One line, whatever names are in it: a client reads commands of its own from lines."""
    return "-- " + "".join(letter if letter.isprintable() and letter != "\\" else "?" for letter in note)


def altered_warnings(tables: Iterable[CreateTable]) -> tuple[str, ...]:
    """A sentence for each kind of value that the connector changes before it arrives, with the tables' columns."""
    found: dict[str, list[str]] = {}
    for table in tables:
        for values, columns in table.altered.items():
            found.setdefault(values, []).append(f"{table.name}: {shown_names(columns)}")
    return tuple(
        f"warning: the connector changes some values, without an error ({shown_names(where, '; ')}): {values}"
        for values, where in found.items()
    )


def by_option(command: str, column: str, type_: str) -> str:
    """How the user of a command that writes a feed chooses a type for a column."""
    return f"{command} … --type {quote(f'{column}={type_}')}"


_BY_FEED_INIT: Final = partial(by_option, "headgate feed init")


def shown_refusals(tables: TargetTables, choosing: Callable[[str, str], str] = _BY_FEED_INIT) -> list[str]:
    """A line for each reason why a table is not created, with what to do.

    ``choosing``: (column, type) → how the user chooses that type.
    """
    return [
        f"no statement for {table.name}"
        + (f", column {show_identifier([refusal.column])}" if refusal.column is not None else "")
        + f": {refusal.reason}"
        + _option(table, refusal, choosing)
        for table in tables.refused
        for refusal in table.refusals
    ]


def _option(table: RefusedTable, refusal: Refusal, choosing: Callable[[str, str], str]) -> str:
    if not refusal.instead or refusal.column is None:
        return ""
    column = f"{table.name}.{show_identifier([refusal.column])}"
    return f". Choose a type for it: {choosing(column, refusal.instead)}"
