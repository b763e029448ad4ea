"""Rows that are copied into lake tables that Headgate created have the source's values, or their types are refused."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import polars
import pytest

from headgate.databases.address import Target
from headgate.databases.key_ranges import Chunk
from headgate.databases.row_source import RowSource
from headgate.databases.row_sources import open_row_source
from headgate.formats.change import CONNECTOR
from headgate.sinks.contract import FeedIdentity, SinkError
from headgate.sinks.delta.sink import DeltaSink
from headgate.sinks.row_copying import CopiedRows
from headgate.tables.copied_to_lake import is_taken_by_lake
from headgate.tables.lake_tables import lake_table
from headgate.tables.statement import Definition, RefusedTable
from integration.tables.test_lake_round_trips import TOO_WIDE, comparable, shown
from integration.tables.test_round_trips import (
    AS_ITSELF,
    MariadbEnd,
    PostgresEnd,
    mariadb_definition,
    one_column,
    postgres_definition,
    rows_of,
    same,
)
from support import build
from support.connector_types import AS_TEXT, DOMAINS, ENUMS, MARIADB, NOT_COPIED, POSTGRESQL, Type, columns

pytestmark = pytest.mark.integration


class Copy:
    """Types of one source, each copied into a Delta table of its own."""

    def __init__(self, source: PostgresEnd | MariadbEnd, table: str, definition: Definition, connector: str) -> None:
        self.source, self.table, self.definition, self.connector = source, table, definition, connector

    def into(self, folder: Path, types: Sequence[Type], plain: str) -> tuple[list[str], set[str]]:
        """Values that are not the source's, and types that are not copied. ``plain``: how plain values are shown."""
        sink, refused = DeltaSink(lambda: Target(f"file://{folder}")), set()
        found: list[str] = []
        with open_row_source(Target(self.source.dsn)) as rows:
            for number, type_ in enumerate(types):
                column, name = f"c{number}", f"copies.t{number}"
                chosen = {column: "string"} if type_.declared in TOO_WIDE else {}
                one = one_column(self.definition, number, "copies")
                made = lake_table(one, name, sink, chosen, is_keyed=True)
                assert not isinstance(made, RefusedTable), (type_.declared, made.refusals)
                sink.create(made.new)
                kind, other = rows.columns(self.table)[column], sink.rows().columns(name)[column]
                if not is_taken_by_lake(self.connector, kind, other):
                    refused.add(type_.declared)
                    continue
                out = plain if type_.out == AS_ITSELF else type_.out
                texts = self.source.texts(self.table, out.format(column))
                try:
                    self._copy(sink, name, column, kind, rows)
                except SinkError as error:
                    found.append(f"{type_.declared}: {error}")
                    continue
                found += self._wrong(folder / "copies" / f"t{number}", column, type_, texts)
        return found, refused

    def _copy(self, sink: DeltaSink, name: str, column: str, kind: str, rows: RowSource) -> None:
        """Raises SinkError."""
        read = rows.rows_within(self.table, ["id", column], ["id"], Chunk(None, None))
        upserts = [dict(zip(("id", column), row[1:], strict=True)) for row in read]
        claim = build.claim(identity=FeedIdentity("c", "0-1", "f"), table=name)
        semantics = {CONNECTOR: self.connector, "id": "int8", column: kind}
        positions = sink.claim(claim)
        sink.writer().copy(
            CopiedRows(claim=claim, positions=positions, key=("id",), upserts=upserts, deletes=[], semantics=semantics)
        )

    def _wrong(self, folder: Path, column: str, type_: Type, texts: dict[int, str | None]) -> Iterator[str]:
        rows = polars.read_delta(str(folder))
        kind = rows.schema[column]
        there = dict(zip(rows["id"].to_list(), rows[column].to_list(), strict=True))
        assert there.keys() == texts.keys()
        for id_, text in texts.items():
            if not same(type_.read, comparable(text, type_, kind), shown(there[id_], type_, kind)):
                yield f"{type_.declared}, row {id_}: {text!r} became {there[id_]!r}"


def test_every_type_of_postgresql(postgres_database: str, tmp_path: Path) -> None:
    with closing(PostgresEnd(postgres_database)) as source:
        for each in (*ENUMS, *DOMAINS):
            source.run(each)
        source.run(f"CREATE TABLE every (id bigint PRIMARY KEY, {columns(POSTGRESQL)})")
        for row in rows_of(POSTGRESQL, 1):
            source.run(f"INSERT INTO every {row}")
        definition = postgres_definition(source.dsn, "public", "every")
        found, refused = Copy(source, "public.every", definition, "postgresql").into(tmp_path, POSTGRESQL, AS_ITSELF)
    assert found == []
    assert refused == NOT_COPIED


def test_every_type_of_a_mariadb(mariadb_database: str, tmp_path: Path) -> None:
    with closing(MariadbEnd(mariadb_database)) as source:
        source.run(f"CREATE TABLE every (id bigint PRIMARY KEY, {columns(MARIADB)})")
        for row in rows_of(MARIADB, 1):
            source.run(f"INSERT INTO every {row}")
        definition = mariadb_definition(source.dsn, "every")
        found, refused = Copy(source, f"{source.schema}.every", definition, "mysql").into(tmp_path, MARIADB, AS_TEXT)
    assert found == []
    assert refused == {type_.declared for type_ in MARIADB if type_.declared.startswith("bit(")} - {"bit(1)"}
