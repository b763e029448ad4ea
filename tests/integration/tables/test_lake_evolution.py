"""Tables of lakes are altered as their source was, in the commit that the fence guards, and other engines read them."""

import os
from collections.abc import Iterator, Mapping
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any, Final
from unittest.mock import patch

import msgspec
import polars
import psycopg
import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field
from pyiceberg.types import StringType

from headgate.config.feed import FeedSpec
from headgate.formats.change import Change, Operation
from headgate.records.control import Epoch
from headgate.sinks.altering import AltersTables, ColumnChanges
from headgate.sinks.contract import (
    ChangeBatch,
    Claim,
    FeedIdentity,
    OffsetRange,
    SinkFencedError,
    SinkMovedError,
    ValueRefusedError,
)
from headgate.sinks.known_columns import KnownColumns
from headgate.sinks.lacking_columns import LackingColumnsError
from headgate.sinks.lake.sink import LakeSink
from headgate.sinks.registry import open_sink
from headgate.tables.creation import create_missing
from headgate.tables.evolution import (
    AtLake,
    NotAlteredError,
    ResyncNeededError,
    add_columns,
    fit_columns,
    restore_columns,
    source_numbers,
)
from integration.tables.lake_places import IcebergPlace, Place, plan, said

pytestmark = pytest.mark.integration

NAME: Final = "shop.orders"
PLAN: Final = plan(NAME)
SOURCE: Final = """
CREATE SCHEMA shop;
CREATE TABLE shop.orders (id int PRIMARY KEY, qty int, price numeric(5,2), ratio real);
"""


class Bed:
    """A source's table and the lake's, which is claimed."""

    def __init__(self, place: Place, mode: str) -> None:
        self.place, self.mode = place, mode
        self.source = psycopg.connect(place.source, autocommit=True)
        self.execute(SOURCE)
        create_missing(self.spec, PLAN, said)
        self.at = 0
        self.sink = self.open()
        self.claimed = self.claim(1)

    @property
    def spec(self) -> FeedSpec:
        return self.place.feed(self.mode, sink={"tables": "evolve"})

    def open(self) -> LakeSink:
        sink = open_sink(self.spec.sink)
        assert isinstance(sink, LakeSink)
        assert isinstance(sink, AltersTables)
        return sink

    def execute(self, statement: str) -> None:
        self.source.execute(statement.encode())

    def claim(self, n: int, incarnation: int = 1) -> Claim:
        claim = Claim(FeedIdentity("c", "0-1", "f"), NAME, PLAN.topic, Epoch(1, n), incarnation, {0: 0})
        self.sink.claim(claim)
        return claim

    def batch(self, *rows: Mapping[str, object], claim: Claim | None = None) -> ChangeBatch:
        changes = [
            Change(0, self.at + number, Operation.UPSERT, {"id": row["id"]}, dict(row), None, 0)
            for number, row in enumerate(rows)
        ]
        return ChangeBatch(claim or self.claimed, {0: OffsetRange(self.at, self.at + len(rows))}, changes)

    def apply(self, *rows: Mapping[str, object]) -> None:
        reached = self.sink.writer().apply(self.batch(*rows)).positions[0]
        assert reached == self.at + len(rows)
        self.at = reached

    @property
    def lake(self) -> AtLake:
        return AtLake(self.sink, self.claimed, {0: self.at})

    @property
    def kept(self) -> KnownColumns:
        return self.sink.known_columns(self.claimed)

    def add(self, *columns: str) -> tuple[str, ...]:
        return add_columns(self.spec, PLAN, dict.fromkeys(columns, ""), said, self.kept, lake=self.lake)

    def fit(self) -> tuple[str, ...]:
        return fit_columns(self.spec, PLAN, said, self.lake).columns

    def keep_numbers(self) -> None:
        """As a claim does."""
        numbers = source_numbers(self.spec, PLAN, said)
        assert numbers is not None
        self.sink.change_known_columns(self.claimed, {0: self.at}, lambda known: known.with_numbers(numbers))

    def rows(self, *columns: str) -> list[tuple[object, ...]]:
        """As Polars and the format's own library read them, which must agree."""
        if isinstance(self.place, IcebergPlace):
            table = self.place.catalog.load_table(NAME)
            with patch.dict(os.environ, {"POLARS_ICEBERG_PLANNER": "pyiceberg"}):
                found = polars.scan_iceberg(table).collect()
            library = table.scan().to_arrow()
        else:
            found = polars.read_delta(str(self.place.folder.joinpath(*NAME.split("."))))
            library = pa.table(self.place.table(NAME).scan())
        names = [*columns] or [name for name in found.columns if not name.startswith("_")]
        rows = sorted(found.select(names).rows(), key=_nulls_last)
        read = zip(*(library[name].to_pylist() for name in names), strict=True)
        assert sorted(read, key=_nulls_last) == rows
        return rows

    def types(self) -> dict[str, object]:
        return {name: type_ for name, type_, _ in self.place.fields(NAME)}

    def version(self) -> int:
        """Of the table's own history."""
        if isinstance(self.place, IcebergPlace):
            return len(self.place.catalog.load_table(NAME).metadata.metadata_log)
        return self.place.table(NAME).version()


def _nulls_last(row: tuple[object, ...]) -> list[tuple[bool, object]]:
    return [(value is None, value) for value in row]


@pytest.fixture(params=["upsert", "append"])
def mode(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=[Place, IcebergPlace], ids=["delta", "iceberg"])
def bed(request: pytest.FixtureRequest, postgres_database: str, tmp_path: Path, mode: str) -> Iterator[Bed]:
    made = Bed(request.param(postgres_database, tmp_path), mode)
    with made.source, closing(made.sink):
        yield made


upserts = pytest.mark.parametrize("mode", ["upsert"], indirect=True)


def test_a_column_is_added_when_a_change_has_it_and_readers_have_it_at_once(bed: Bed) -> None:
    bed.apply({"id": 1, "qty": 1})
    bed.execute("ALTER TABLE shop.orders ADD COLUMN note varchar(10); COMMENT ON COLUMN shop.orders.note IS 'why'")
    row = {"id": 2, "qty": 2, "note": "new"}
    with pytest.raises(LackingColumnsError, match="column note, which the table does not have") as refused:
        bed.sink.writer().apply(bed.batch(row))
    assert refused.value.columns == {"note": ""}
    before = bed.version()
    assert (bed.add("note"), bed.add("note")) == (("note",), ())
    assert bed.version() == before + 1
    assert bed.rows("id", "note") == [(1, None), (2, "new")][:1]
    bed.apply(row, {"id": 1, "qty": 3, "note": None})
    assert bed.place.comments(NAME, "note")[1] == "why"
    expected = [(1, 3, None), (2, 2, "new")]
    assert bed.rows("id", "qty", "note") == (expected if bed.mode == "upsert" else [(1, 1, None), *expected])
    assert "note" in bed.kept.applied


@upserts
@pytest.mark.parametrize(
    ("declared", "first"),
    [
        ("int NOT NULL DEFAULT 7", 7), ("text DEFAULT 'it''s'", "it's"), ("boolean NOT NULL DEFAULT true", True),
        ("numeric(6,2) DEFAULT 1.50", Decimal("1.50")), ("double precision DEFAULT 0.1", 0.1), ("int", None),
    ],
)  # fmt: skip
def test_older_rows_have_what_they_have_at_the_source_and_so_have_late_changes(
    bed: Bed, declared: str, first: object
) -> None:
    bed.apply({"id": 1, "qty": 1}, {"id": 2, "qty": 2})
    bed.execute(f"ALTER TABLE shop.orders ADD COLUMN more {declared}")
    if first is not None:
        bed.execute("ALTER TABLE shop.orders ALTER COLUMN more DROP DEFAULT")
    before = bed.version()
    bed.add("more")
    assert bed.version() == before + 1
    assert bed.rows("id", "more") == [(1, first), (2, first)]
    # As from another partition, or sent again: changes that do not have the column yet.
    bed.apply({"id": 2, "qty": 3, "more": None}, {"id": 3, "qty": 3}, {"id": 2, "qty": 4}, {"id": 1, "qty": 5})
    assert bed.rows("id", "qty", "more") == [(1, 5, first), (2, 4, None), (3, 3, first)]


@pytest.mark.parametrize("mode", ["append"], indirect=True)
def test_a_table_of_changes_keeps_what_its_changes_had(bed: Bed) -> None:
    bed.apply({"id": 1, "qty": 1})
    bed.execute("ALTER TABLE shop.orders ADD COLUMN more int NOT NULL DEFAULT 7")
    bed.add("more")
    bed.apply({"id": 1, "qty": 2, "more": 7}, {"id": 2, "qty": 2})
    assert bed.rows("id", "qty", "more") == [(1, 1, None), (1, 2, 7), (2, 2, None)]


@upserts
def test_a_default_that_is_no_constant_is_refused_until_the_table_is_empty(bed: Bed) -> None:
    bed.apply({"id": 1, "qty": 1})
    bed.execute("ALTER TABLE shop.orders ADD COLUMN at timestamptz NOT NULL DEFAULT now()")
    with pytest.raises(NotAlteredError, match=r"not known what rows .* Run ALTER TABLE .* ADD COLUMN `at` timestamp,"):
        bed.add("at")
    bed.sink.writer().apply(
        ChangeBatch(bed.claimed, {0: OffsetRange(1, 2)}, [Change(0, 1, Operation.DELETE, {"id": 1}, None, None, 0)])
    )
    bed.at = 2
    assert bed.add("at") == ("at",)


def test_a_renamed_column_is_renamed_by_its_id_or_refused_with_the_way_out(bed: Bed) -> None:
    bed.apply({"id": 1, "qty": 1})
    bed.keep_numbers()
    bed.execute("ALTER TABLE shop.orders RENAME COLUMN qty TO amount")
    if isinstance(bed.place, IcebergPlace):
        assert (bed.add("amount"), bed.add("amount")) == (("amount",), ())
        bed.apply({"id": 2, "amount": 2})
        assert bed.rows("id", "amount") == [(1, 1), (2, 2)]
        assert "qty" not in bed.types()
        return
    with pytest.raises(NotAlteredError, match=r"qty of table shop.orders is amount .* columns.rename: \{amount: qty\}"):
        bed.add("amount")
    assert "amount" not in bed.types()


@upserts
def test_the_key_can_be_renamed_where_columns_can(bed: Bed) -> None:
    if not isinstance(bed.place, IcebergPlace):
        pytest.skip("of Iceberg")
    bed.apply({"id": 1, "qty": 1})
    bed.keep_numbers()
    bed.execute("ALTER TABLE shop.orders RENAME COLUMN id TO number")
    assert bed.add("number") == ("number",)
    rows = [{"number": 1, "qty": 2}, {"number": 2, "qty": 2}]
    changes = [
        Change(0, at, Operation.UPSERT, {"number": row["number"]}, dict(row), None, 0) for at, row in enumerate(rows, 1)
    ]
    bed.sink.writer().apply(ChangeBatch(bed.claimed, {0: OffsetRange(1, 3)}, changes))
    assert bed.rows("number", "qty") == [(1, 2), (2, 2)]


def test_changes_from_before_a_rename_go_into_the_renamed_column(bed: Bed) -> None:
    if not isinstance(bed.place, IcebergPlace):
        pytest.skip("of Iceberg")
    bed.apply({"id": 1, "qty": 1})
    bed.keep_numbers()
    bed.execute("ALTER TABLE shop.orders RENAME COLUMN qty TO amount")
    bed.add("amount")
    bed.sink.change_known_columns(bed.claimed, {0: bed.at}, lambda known: known.with_former({"qty": "amount"}, {0: 2}))
    bed.apply({"id": 2, "qty": 2})
    assert (2, 2) in bed.rows("id", "amount")
    with pytest.raises(LackingColumnsError, match="column qty"):
        bed.apply({"id": 3, "qty": 3})


@pytest.mark.parametrize(
    "case",
    [
        ("qty", "bigint", 1, 2**40, pa.int64()),
        ("price", "numeric(9,2)", "1.50", "1234567.25", pa.decimal128(9, 2)),
        ("ratio", "double precision", 0.5, 0.123456789012, pa.float64()),
    ],
)
def test_a_type_is_widened_when_a_value_needs_it_and_old_files_are_read(
    bed: Bed, case: tuple[str, str, object, object, pa.DataType]
) -> None:
    column, type_, small, large, wide = case
    bed.apply({"id": 1, column: small}, {"id": 2, column: small})
    bed.execute(f"ALTER TABLE shop.orders ALTER COLUMN {column} TYPE {type_}")
    row = {"id": 3, column: large}
    with pytest.raises(ValueRefusedError, match=f"column {column}"):
        bed.apply(row)
    before = bed.version()
    assert (bed.fit(), bed.fit()) == ((column,), ())
    assert (bed.version(), bed.types()[column]) == (before + 1, wide)
    bed.apply(row)
    bed.apply({"id": 1, column: large})  # rewrites a file of before, if there is still one
    found = dict(bed.rows("id", column))[2]  # type: ignore[misc]
    assert found == (Decimal(str(small)) if column == "price" else small)
    assert len(bed.rows("id")) == 3 + (bed.mode == "append")


def test_the_keys_type_is_widened_and_rows_of_old_files_are_found(bed: Bed) -> None:
    bed.apply({"id": 1, "qty": 1}, {"id": 2, "qty": 2})
    bed.execute("ALTER TABLE shop.orders ALTER COLUMN id TYPE bigint")
    with pytest.raises(ValueRefusedError, match="column id"):
        bed.apply({"id": 2**40, "qty": 3})
    assert bed.fit() == ("id",)
    bed.apply({"id": 2**40, "qty": 3}, {"id": 2, "qty": 4})
    upserted = [(1, 1), (2, 4), (2**40, 3)]
    assert bed.rows("id", "qty") == (upserted if bed.mode == "upsert" else [(1, 1), (2, 2), (2, 4), (2**40, 3)])
    bed.apply({"id": 1, "qty": 9})
    assert (1, 9) in bed.rows("id", "qty")


def test_a_type_that_the_format_does_not_widen_is_refused_with_what_to_do(bed: Bed) -> None:
    bed.apply({"id": 1, "price": "1.50"})
    bed.execute("ALTER TABLE shop.orders ALTER COLUMN price TYPE numeric(9,4)")
    found = fit_columns(bed.spec, PLAN, said, bed.lake)
    if isinstance(bed.place, IcebergPlace):
        assert found.columns == ()
        (why,) = found.refusals
        assert "price is numeric(9,4) at the source and decimal(5,2) here. Run ALTER TABLE" in why
        return
    assert (found.columns, bed.types()["price"]) == (("price",), pa.decimal128(9, 4))
    assert bed.rows("id", "price") == [(1, Decimal("1.5000"))]


def test_a_dropped_column_stays_and_is_not_written_any_more(bed: Bed) -> None:
    bed.apply({"id": 1, "qty": 1})
    bed.execute("ALTER TABLE shop.orders DROP COLUMN qty")
    bed.apply({"id": 2})
    assert bed.rows("id", "qty") == [(1, 1), (2, None)]
    bed.execute("ALTER TABLE shop.orders ADD COLUMN count int")
    with pytest.raises(NotAlteredError, match="may be the new name of qty"):
        bed.add("count")


@upserts
def test_not_null_is_dropped_where_the_source_has_dropped_it(bed: Bed) -> None:
    bed.place.drop(NAME)
    if isinstance(bed.place, IcebergPlace):
        schema = pa.schema([pa.field("id", pa.int32(), nullable=False), pa.field("qty", pa.int32(), nullable=False)])
        bed.place.catalog.create_table(NAME, schema, properties={"headgate.key": '["id"]'})
    else:
        schema = pa.schema([pa.field("id", pa.int32(), nullable=False), pa.field("qty", pa.int32(), nullable=False)])
        DeltaTable.create(
            bed.place.folder / "shop" / "orders", schema, configuration={"headgate.key": '["id"]'},
            raise_if_key_not_exists=False,
        )  # fmt: skip
    bed.claimed = bed.claim(2, incarnation=2)
    bed.apply({"id": 1, "qty": 1})
    with pytest.raises(ValueRefusedError, match="the value is NULL"):
        bed.apply({"id": 2, "qty": None})
    assert bed.fit() == ("qty",)
    bed.apply({"id": 2, "qty": None})
    assert bed.rows("id", "qty") == [(1, 1), (2, None)]


def test_whoever_was_overtaken_alters_nothing(bed: Bed) -> None:
    bed.apply({"id": 1, "qty": 1})
    bed.execute("ALTER TABLE shop.orders ADD COLUMN note text, ADD COLUMN n int NOT NULL DEFAULT 1")
    stale, before = bed.lake, bed.version()
    bed.claimed = bed.claim(2)
    with pytest.raises(SinkFencedError):
        add_columns(bed.spec, PLAN, {"note": ""}, said, lake=stale)
    with pytest.raises(SinkFencedError):
        stale.sink.alter(stale.claim, stale.positions, _present(bed), ColumnChanges())
    with pytest.raises(SinkMovedError):
        add_columns(bed.spec, PLAN, {"note": ""}, said, lake=msgspec.structs.replace(bed.lake, positions={0: 0}))
    assert "note" not in bed.types()
    assert bed.version() - before <= 1  # the claim's own commit
    assert bed.add("note", "n") == ("note", "n")


def _present(bed: Bed) -> Any:
    return bed.sink.present_table(NAME)


@upserts
def test_a_claim_between_reading_the_table_and_altering_it_refuses_the_alteration(bed: Bed) -> None:
    bed.apply({"id": 1, "qty": 1})
    bed.execute("ALTER TABLE shop.orders ADD COLUMN note text")
    stale, other = bed.lake, bed.open()
    real = stale.sink._claims.change_known_columns  # type: ignore[attr-defined]

    def overtaken(*arguments: Any) -> None:
        real(*arguments)
        other.claim(msgspec.structs.replace(bed.claimed, epoch=Epoch(1, 2)))

    with (
        patch.object(stale.sink._claims, "change_known_columns", overtaken),  # type: ignore[attr-defined]
        pytest.raises(SinkFencedError),
    ):
        add_columns(bed.spec, PLAN, {"note": ""}, said, lake=stale)
    assert "note" not in bed.types()


def test_what_a_user_alters_at_the_same_time_fits_or_is_left_alone(bed: Bed) -> None:
    bed.apply({"id": 1, "qty": 1})
    bed.execute("ALTER TABLE shop.orders ADD COLUMN note text, ADD COLUMN n int")
    before = _present(bed)
    if isinstance(bed.place, IcebergPlace):
        with bed.place.catalog.load_table(NAME).update_schema() as update:
            update.add_column("note", StringType())
    else:
        bed.place.table(NAME).alter.add_columns([Field("note", "string")])
    assert not bed.sink.alter(bed.claimed, {0: bed.at}, before, ColumnChanges())
    assert bed.add("note", "n") == ("n",)
    bed.apply({"id": 2, "note": "x", "n": 3})
    assert bed.rows("id", "note", "n")[-1] == (2, "x", 3)


@upserts
def test_a_column_that_was_dropped_at_the_lake_waits_for_a_copy(bed: Bed) -> None:
    if not isinstance(bed.place, IcebergPlace):
        pytest.skip("delta-rs does not drop columns")
    bed.apply({"id": 1, "qty": 1})
    with bed.place.catalog.load_table(NAME).update_schema() as update:
        update.delete_column("qty")
    with pytest.raises(ResyncNeededError, match=r"column qty of table .* was dropped at the sink"):
        bed.add("qty")
    announced: list[str] = []
    restored = restore_columns(bed.spec, PLAN, said, bed.kept, announced.extend, lake=bed.lake)
    assert (restored, announced) == (("qty",), ["qty"])


@upserts
def test_names_that_differ_in_case_only_are_refused(bed: Bed) -> None:
    bed.apply({"id": 1, "qty": 1})
    bed.execute('ALTER TABLE shop.orders ADD COLUMN "Qty" int')
    with pytest.raises(NotAlteredError, match="the table has qty, which differs only in upper and lower case"):
        bed.add("Qty")


def test_a_copy_of_the_feed_that_begins_again_knows_what_older_changes_mean(bed: Bed) -> None:
    if bed.mode == "append":
        pytest.skip("of mode upsert")
    bed.apply({"id": 1, "qty": 1})
    bed.execute("ALTER TABLE shop.orders ADD COLUMN n int NOT NULL DEFAULT 7")
    bed.add("n")
    bed.claimed, bed.at = bed.claim(2, incarnation=2), 0
    assert (bed.kept.applied, bed.kept.first) == ((), {"n": "7"})
    bed.apply({"id": 1, "qty": 1}, {"id": 9, "qty": 1})
    assert bed.rows("id", "n") == [(1, 7), (9, 7)]
