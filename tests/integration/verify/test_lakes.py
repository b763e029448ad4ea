"""Lake tables are compared with their source: every type, by ranges and by keys, and what differs is found."""

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from headgate.config.sink_spec import SinkSpec
from headgate.databases.address import Target
from headgate.databases.key_ranges import Chunk
from headgate.databases.row_sources import open_row_source
from headgate.formats.change import CONNECTOR
from headgate.sinks.contract import FeedIdentity
from headgate.sinks.lake.sink import LakeSink
from headgate.sinks.registry import open_sink
from headgate.sinks.row_copying import CopiedRows
from headgate.tables.lake_tables import LakeTable, lake_table
from headgate.verify import comparing, spilling
from headgate.verify.comparing import TableCompared, compare_table
from headgate.verify.contract import UncomparableError
from headgate.verify.sides import open_side, open_target
from integration.tables.test_lake_round_trips import TOO_WIDE
from integration.tables.test_round_trips import (
    MariadbEnd,
    PostgresEnd,
    mariadb_definition,
    postgres_definition,
    rows_of,
)
from support import build
from support.connector_types import MARIADB, NOT_COPIED, POSTGRESQL, Type, columns

pytestmark = pytest.mark.integration

NAME = "copies.every"


def spec_of(kind: str, folder: Path) -> SinkSpec:
    if kind == "delta":
        return SinkSpec.model_validate({"type": kind, "dsn": f"file://{folder}"})
    dsn = f"sqlite:///{folder}/catalog.db"
    SqlCatalog("default", uri=dsn, warehouse=f"file://{folder}").create_tables()
    return SinkSpec.model_validate({"type": kind, "dsn": dsn})


class Lake:
    """A table at a source, and its copy in a lake."""

    def __init__(self, spec: SinkSpec, source: PostgresEnd | MariadbEnd, definition: Any, table: str) -> None:
        self.spec, self.source, self.table = spec, source, table
        found = open_sink(spec)
        assert isinstance(found, LakeSink)
        self.sink = found
        types = dict.fromkeys(
            (column.name for column in definition.form.columns if column.type.replace(", ", ",") in TOO_WIDE), "string"
        )
        made = lake_table(definition, NAME, self.sink, types, is_keyed=True)
        assert isinstance(made, LakeTable), made
        self.sink.create(made.new)
        self.key = made.new.key
        self.claim = build.claim(identity=FeedIdentity("c", "0-1", "f"), table=NAME)
        self.positions = self.sink.claim(self.claim)

    def copy(self, deletes: Sequence[dict[str, object]] = (), **instead: object) -> None:
        """All rows, with other values of some columns."""
        connector = "postgresql" if isinstance(self.source, PostgresEnd) else "mysql"
        with open_row_source(Target(self.source.dsn)) as rows:
            kinds = rows.columns(self.table)
            read = rows.rows_within(self.table, list(kinds), list(self.key), Chunk(None, None))
            upserts = [dict(zip(kinds, row[len(self.key) :], strict=True)) | instead for row in read]
        self.sink.writer().copy(
            CopiedRows(
                claim=self.claim,
                positions=self.positions,
                key=self.key,
                upserts=[] if deletes else upserts,
                deletes=deletes,
                semantics={CONNECTOR: connector, **kinds},
            )
        )

    def compared(self) -> TableCompared:
        return compared(self.source, self.spec, self.table)


def compared(source: PostgresEnd | MariadbEnd, spec: SinkSpec, table: str) -> TableCompared:
    with closing(open_side(Target(source.dsn))) as here, closing(open_target(spec)) as there:
        return compare_table(here, there, table, NAME)


def differing_types(found: TableCompared, types: Sequence[Type]) -> set[str]:
    return {types[int(name[1:])].declared for example in found.examples for name in example.columns}


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_every_type_of_postgresql_is_equal(postgres_database: str, tmp_path: Path, kind: str) -> None:
    types = [type_ for type_ in POSTGRESQL if type_.declared not in NOT_COPIED]
    with closing(PostgresEnd(postgres_database)) as source:
        source.run(f"CREATE TABLE every (id bigint PRIMARY KEY, {columns(types)})")
        for row in rows_of(types, 1):
            source.run(f"INSERT INTO every {row}")
        lake = Lake(spec_of(kind, tmp_path), source, postgres_definition(source.dsn, "public", "every"), "public.every")
        lake.copy()
        found = lake.compared()
    assert differing_types(found, types) == set()
    assert (found.differences, found.columns_missing, found.columns_surplus) == (0, (), ())
    assert found.rows > 0


def test_every_type_of_a_mariadb_is_equal(mariadb_database: str, tmp_path: Path) -> None:
    types = [type_ for type_ in MARIADB if not type_.declared.startswith("bit(") or type_.declared == "bit(1)"]
    with closing(MariadbEnd(mariadb_database)) as source:
        source.run(f"CREATE TABLE every (id bigint PRIMARY KEY, {columns(types)})")
        for row in rows_of(types, 1):
            source.run(f"INSERT INTO every {row}")
        lake = Lake(
            spec_of("delta", tmp_path), source, mariadb_definition(source.dsn, "every"), f"{source.schema}.every"
        )
        lake.copy()
        found = lake.compared()
    assert differing_types(found, types) == set()
    assert found.differences == 0


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
@pytest.mark.parametrize("key", ["int4", "text", "int4, text"])
def test_what_differs_is_found_by_ranges_and_in_a_table_that_is_sorted(
    postgres_database: str, tmp_path: Path, kind: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparing, "ROWS_PER_RANGE", 10)
    monkeypatch.setattr(spilling, "RUN_ROWS", 7)
    kinds = key.split(", ")
    names = [f"k{number}" for number in range(len(kinds))]
    declared = ", ".join(f"{name} {type_} NOT NULL" for name, type_ in zip(names, kinds, strict=True))
    with closing(PostgresEnd(postgres_database)) as source:
        source.run(f"CREATE TABLE every ({declared}, v text, at timestamptz, PRIMARY KEY ({', '.join(names)}))")
        values = ", ".join(["n"] * len(names))
        source.run(f"INSERT INTO every SELECT {values}, 'v' || n, '2026-11-29Z' FROM generate_series(-5, 50) n")
        lake = Lake(spec_of(kind, tmp_path), source, postgres_definition(source.dsn, "public", "every"), "public.every")
        lake.copy()
        assert (lake.compared().rows, lake.compared().differences) == (56, 0)
        source.run("UPDATE every SET v = NULL WHERE k0::int4 = 7")
        source.run("DELETE FROM every WHERE k0::int4 = 49")
        lake.copy(deletes=[dict.fromkeys(names, "-5")])
        found = lake.compared()
    assert found.differences == 3
    assert {(example.kind, tuple(example.key.values()), example.columns) for example in found.examples} == {
        ("differs", ("7",) * len(names), ("v",)),
        ("surplus", ("49",) * len(names), ()),
        ("missing", ("-5",) * len(names), ()),
    }


def test_a_table_that_declares_no_key_or_does_not_exist_is_not_compared(postgres_database: str, tmp_path: Path) -> None:
    with closing(PostgresEnd(postgres_database)) as source:
        source.run("CREATE TABLE every (id bigint PRIMARY KEY)")
        spec = spec_of("delta", tmp_path)
        with pytest.raises(UncomparableError, match="does not exist in the target"):
            compared(source, spec, "public.every")
        definition = postgres_definition(source.dsn, "public", "every")
        sink = open_sink(spec)
        assert isinstance(sink, LakeSink)
        made = lake_table(definition, NAME, sink, {}, is_keyed=False)
        assert isinstance(made, LakeTable)
        sink.create(made.new)
        with pytest.raises(UncomparableError, match="Set the table property headgate"):
            compared(source, spec, "public.every")
