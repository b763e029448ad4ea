"""Every type, captured by a real connector and applied to Delta tables that Headgate created, read by Polars."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy
import polars
import psycopg
import pytest

from fixtures.capture import Sources
from headgate.databases.address import Target
from headgate.formats.change import Change
from headgate.provisioning.time_scale import scaled_seconds
from headgate.sinks.contract import SinkError
from headgate.sinks.delta.sink import DeltaSink
from headgate.tables.lake_tables import lake_table
from headgate.tables.statement import Definition, RefusedTable
from support.connector_types import AS_TEXT, DOMAINS, ENUMS, MARIADB, POSTGRESQL, Type, columns, moment

from .test_round_trips import (
    AS_ITSELF,
    CONNECTOR,
    OF_MARIADB,
    MariadbEnd,
    PostgresEnd,
    apply,
    captured,
    mariadb_definition,
    one_column,
    postgres_definition,
    rows_of,
    same,
    with_column,
)

# A connector is started, and each type has a table of its own.
pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(scaled_seconds(900))]

OF_POSTGRESQL: Final = [
    *POSTGRESQL,
    Type("real", ("'NaN'", "'-Infinity'", "3.4028235e38", "1e-45"), read=lambda text: str(numpy.float32(text))),
    Type("double precision", ("'NaN'", "'-Infinity'", "'Infinity'"), read=lambda text: repr(float(text))),
    Type("bit(70)", (f"B'{'01' * 35}'",)),
    Type("interval(3)", ("'0'",), out="CASE WHEN {} IS NOT NULL THEN 'P0Y0M0DT0H0M0S' END"),
    Type("numeric(38,38)", ("-0." + "9" * 38,)),
    Type("numeric(38)", ("-" + "9" * 38,)),
]
"""With the values of floating numbers that no other database has, and the longest decimals."""

TOO_WIDE: Final = {"numeric(65,30)", "decimal(65,30)", "decimal(65,0) unsigned"}
"""These are refused, and created as strings where the user chooses that."""


def shown(value: object, type_: Type, kind: polars.DataType) -> str | None:
    """A value that Polars has read, as its source shows it."""
    match value:
        case datetime():
            text = value.replace(tzinfo=None).isoformat(" ")
        case Decimal():
            text = f"{value:f}"
        case float():
            text = str(numpy.float32(value)) if kind == polars.Float32 else repr(value)
        case bytes():
            text = value.hex().upper() if type_.out.startswith("HEX") else f"\\x{value.hex()}"
        case bool():
            text = str(value).lower()
        case _:
            text = str(value)
    return None if value is None else comparable(text, type_, kind)


def comparable(text: str | None, type_: Type, kind: polars.DataType) -> str | None:
    """A text without what databases show differently: spaces that fill a ``char``, zeros that end a fraction."""
    if text is None:
        return None
    if kind == polars.Boolean and text in ("0", "1"):
        return "true" if text == "1" else "false"
    if type_.declared.startswith("char("):
        return text.rstrip(" ")
    return moment(text) if isinstance(kind, polars.Datetime) or type_.declared.startswith("time(") else text


class Captured(NamedTuple):
    """``texts``: id → value, of each type."""

    changes: Sequence[Change]
    definition: Definition
    types: Sequence[Type]
    texts: Sequence[Mapping[int, str | None]]

    def wrong(self, folder: Path, mode: str) -> list[str]:
        """Each value that is not the source's, and each type that cannot be written."""
        sink = DeltaSink(lambda: Target(f"file://{folder}"), appends=mode == "append")
        return [line for number in range(len(self.types)) for line in self._wrong(number, sink, folder, mode)]

    def _wrong(self, number: int, sink: DeltaSink, folder: Path, mode: str) -> Iterator[str]:
        type_, column, name = self.types[number], f"c{number}", f"copies.t{number}"
        chosen = {column: "string"} if type_.declared in TOO_WIDE else {}
        one = one_column(self.definition, number, "copies")
        made = lake_table(one, name, sink, chosen, is_keyed=mode == "upsert")
        assert not isinstance(made, RefusedTable), (type_.declared, made.refusals)
        assert sink.create(made.new)
        try:
            apply(sink, name, (with_column(change, number) for change in self.changes))
        except SinkError as error:
            yield f"{type_.declared}: {error}"
            return
        rows = polars.read_delta(str(folder / "copies" / f"t{number}"))
        kind = rows.schema[column]
        there = dict(zip(rows["id"].to_list(), rows[column].to_list(), strict=True))
        assert there.keys() == self.texts[number].keys()
        for id_, text in self.texts[number].items():
            if not same(type_.read, comparable(text, type_, kind), shown(there[id_], type_, kind)):
                yield f"{type_.declared}, row {id_}: {text!r} became {there[id_]!r}"


def refused(definition: Definition, types: Sequence[Type], folder: Path) -> set[str]:
    """Types that are not created unless the user chooses another one."""
    made = lake_table(definition, "copies.all", DeltaSink(lambda: Target(f"file://{folder}")), {}, is_keyed=True)
    assert isinstance(made, RefusedTable)
    return {types[int((refusal.column or "")[1:])].declared for refusal in made.refusals}


def test_from_postgresql(
    sources: Sources, postgres_schema: tuple["psycopg.Connection[tuple[Any, ...]]", str], tmp_path: Path
) -> None:
    _, schema = postgres_schema
    with closing(PostgresEnd(sources.postgres.dsn())) as source:
        source.run(f"SET search_path = {schema}")
        for statement in (*ENUMS, *DOMAINS):
            source.run(statement)
        source.run(f"CREATE TABLE every (id bigint PRIMARY KEY, {columns(OF_POSTGRESQL)})")
        with_rows(source, "every", OF_POSTGRESQL)
        sources.capture_postgres(schema, schema, **CONNECTOR, **{"interval.handling.mode": "string"})
        changes = captured(sources, f"{schema}.{schema}.every", f"{schema}.every", source, OF_POSTGRESQL)
        definition = postgres_definition(source.dsn, schema, "every")
        texts = [source.texts(f"{schema}.every", type_.out.format(f"c{n}")) for n, type_ in enumerate(OF_POSTGRESQL)]
    assert refused(definition, OF_POSTGRESQL, tmp_path) == TOO_WIDE & {type_.declared for type_ in OF_POSTGRESQL}
    found = Captured(changes, definition, OF_POSTGRESQL, texts)
    assert [line for mode in ("upsert", "append") for line in found.wrong(tmp_path / mode, mode)] == []


def test_from_mariadb(sources: Sources, mariadb_source: str, tmp_path: Path) -> None:
    database = mariadb_source.rpartition("/")[2]
    with closing(MariadbEnd(mariadb_source)) as source:
        source.run(f"CREATE TABLE every (id bigint PRIMARY KEY, {columns(MARIADB)})")
        with_rows(source, "every", MARIADB)
        sources.capture_mariadb(database, database, **CONNECTOR, **OF_MARIADB)
        changes = captured(sources, f"{database}.{database}.every", "every", source, MARIADB)
        definition = mariadb_definition(mariadb_source, "every")
        out = [AS_TEXT if type_.out == AS_ITSELF else type_.out for type_ in MARIADB]
        texts = [source.texts("every", text.format(f"c{number}")) for number, text in enumerate(out)]
    assert refused(definition, MARIADB, tmp_path) == TOO_WIDE & {type_.declared for type_ in MARIADB}
    found = Captured(changes, definition, MARIADB, texts)
    assert [line for mode in ("upsert", "append") for line in found.wrong(tmp_path / mode, mode)] == []


def with_rows(source: PostgresEnd | MariadbEnd, table: str, types: Sequence[Type]) -> None:
    for row in rows_of(types, 1):
        source.run(f"INSERT INTO {table} {row}")
