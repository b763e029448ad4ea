"""Readers that leave out files by the statistics of lake tables still find every row."""

import os
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from unittest.mock import patch

import polars
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from headgate.sinks.delta.statistics import COLUMNS, TEXT_MAX
from headgate.sinks.lake.staged_rows import GONE, absent_column, column
from headgate.sinks.lake.tables import POSITIONS, Altered, Stamp, Upserts, VersionedTable
from integration.sinks.delta_bench import DeltaBench
from integration.sinks.iceberg_bench import IcebergBench
from integration.sinks.lake_contract import LakeBench

pytestmark = pytest.mark.integration

INF = float("inf")
VALUES: dict[str, tuple[pa.DataType, list[object]]] = {
    "unsigned": (pa.decimal128(20, 0), [Decimal(n) for n in (1, 2**53 + 1, 2**63, 2**64 - 1)]),
    "wide": (pa.decimal128(38, 10), [Decimal(t) for t in ("1E-10", "123456789.123456789", "-1.1234567891", "1E+27")]),
    "narrow": (pa.decimal128(15, 2), [Decimal(t) for t in ("9999999999999.99", "-9999999999999.99", "0.07", "1.01")]),
    "double": (pa.float64(), [1.0, float("nan"), INF, -INF]),
    "float": (pa.float32(), [1.0, float("nan"), INF, -INF]),
    "text": (pa.string(), ["a" * 15 + "\ud7ff" * 2, "\U0010ffff" * 70, "z" * 70, "z" * 5000]),
    "bytes": (pa.binary(), [b"", b"\xff" * 70, b"\0", b"z" * 5000]),
}
SCHEMA = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), *(pa.field(n, type_) for n, (type_, _) in VALUES.items())]
)
ROWS = len(VALUES["double"][1])


@pytest.fixture(params=[DeltaBench, IcebergBench], ids=["delta", "iceberg"])
def bench(tmp_path: Path, request: pytest.FixtureRequest) -> LakeBench:
    class Bench(request.param):  # type: ignore[misc, name-defined] # one of the two
        columns = SCHEMA

    return Bench(tmp_path, appends=False)


def table_of(bench: LakeBench) -> VersionedTable:
    found = bench.lake.table(bench.table)
    assert found is not None
    return found


def rows(*numbers: int) -> pa.Table:
    columns = {"id": pa.array(numbers, pa.int64())}
    return pa.table(
        columns | {name: pa.array([values[n] for n in numbers], type_) for name, (type_, values) in VALUES.items()}
    )


def upsert(bench: LakeBench, found: pa.Table) -> None:
    staged = found.rename_columns([column(number) for number in range(found.num_columns)])
    staged = staged.append_column(GONE, pa.array([False] * found.num_rows))
    table_of(bench).upsert(Upserts(staged, found.column_names, ("id",)), Stamp())


def lazily(bench: LakeBench) -> polars.LazyFrame:
    return polars.scan_delta(bench.path) if isinstance(bench, DeltaBench) else polars.scan_iceberg(bench.native)


def check_found(bench: LakeBench) -> None:
    with patch.dict(os.environ, {"POLARS_ICEBERG_PLANNER": "pyiceberg"}):
        whole = lazily(bench).collect()
        assert whole.height == ROWS
        for name, (_, values) in VALUES.items():
            for value in values:
                for is_so in (polars.Expr.eq, polars.Expr.ge, polars.Expr.le, polars.Expr.gt, polars.Expr.lt):
                    condition = is_so(polars.col(name), polars.lit(value, dtype=whole[name].dtype))
                    assert lazily(bench).filter(condition).collect().height == whole.filter(condition).height, condition


@pytest.mark.parametrize("write", [upsert, lambda bench, found: table_of(bench).append(found, Stamp())])
def test_a_filter_finds_every_value(bench: LakeBench, write: Callable[[LakeBench, pa.Table], None]) -> None:
    for number in range(ROWS):
        write(bench, rows(number))
    check_found(bench)
    table_of(bench).compact(1 << 20, Stamp())
    check_found(bench)


def test_row_groups_of_which_one_has_no_statistics(bench: LakeBench) -> None:
    """As a file of more than a million rows, with long texts."""
    if isinstance(bench, IcebergBench):
        with bench.native.transaction() as transaction:
            transaction.set_properties({"write.parquet.row-group-limit": "2"})
    upsert(bench, rows(*range(ROWS)))
    check_found(bench)


def test_arrow_reads_a_delta_table_by_a_filter(tmp_path: Path) -> None:
    """It takes statistics that a file lacks for NULL, unless the table lists no such column."""

    class Bench(DeltaBench):
        columns = SCHEMA

    bench = Bench(tmp_path, appends=False)
    upsert(bench, rows(*range(ROWS)))
    dataset = bench.native.to_pyarrow_dataset()
    for name in ("unsigned", "wide", "narrow", "double"):
        type_, values = VALUES[name]
        assert dataset.to_table(filter=pc.field(name) == pa.scalar(values[0], type_)).num_rows == 1


def test_a_list_of_a_user_gets_no_columns_and_loses_no_rows(tmp_path: Path) -> None:
    class Bench(DeltaBench):
        columns = SCHEMA

    bench = Bench(tmp_path, appends=False)
    bench.native.alter.set_table_properties({COLUMNS: "`id`"}, raise_if_not_exists=False)
    write_deltalake(bench.path, rows(0), mode="append")
    for number in range(1, ROWS):
        upsert(bench, rows(number))
    assert bench.native.metadata().configuration[COLUMNS] == "`id`"
    dataset = bench.native.to_pyarrow_dataset()
    for name in ("unsigned", "wide", "narrow", "double"):
        type_, values = VALUES[name]
        assert dataset.to_table(filter=pc.field(name) == pa.scalar(values[0], type_)).num_rows == 1, name


def test_the_commit_of_a_list_shows_its_feed_and_no_positions(tmp_path: Path) -> None:
    class Bench(DeltaBench):
        columns = SCHEMA

    bench = Bench(tmp_path, appends=False)
    table_of(bench).append(rows(0), Stamp({}, {"headgate.feed": "orders", POSITIONS: "{}"}))
    appended, listed, *_ = bench.native.history()
    assert listed["operation"] == "SET TBLPROPERTIES"
    assert listed["headgate.feed"] == appended["headgate.feed"] == "orders"
    assert POSITIONS in appended
    assert POSITIONS not in listed
    table_of(bench).append(rows(1), Stamp())
    assert bench.version() == appended["version"] + 1, "the list is only written when it changes"


def test_a_column_that_is_widened_loses_its_statistics(tmp_path: Path) -> None:
    class Bench(DeltaBench):
        columns = SCHEMA

    bench = Bench(tmp_path, appends=False)
    upsert(bench, rows(0))
    assert DeltaTable(bench.path).metadata().configuration[COLUMNS] == "`id`,`narrow`,`text`"
    added = (pa.field("more", pa.int32()), pa.scalar(None, pa.int32()))
    table_of(bench).alter(Altered([added], {}, {"narrow": pa.decimal128(20, 2)}, frozenset()), Stamp())
    assert DeltaTable(bench.path).metadata().configuration[COLUMNS] == "`id`,`text`"
    table_of(bench).append(rows(1).append_column("more", pa.array([1], pa.int32())), Stamp())
    assert DeltaTable(bench.path).metadata().configuration[COLUMNS] == "`id`,`text`,`more`"


def test_delta_files_have_no_statistics_of_floats(tmp_path: Path) -> None:
    """They lack NaN, and Spark leaves out row groups by them: ``double > 5`` would miss NaN, which is greater."""

    class Bench(DeltaBench):
        columns = SCHEMA

    bench = Bench(tmp_path, appends=False)
    table_of(bench).append(rows(0, 1), Stamp())
    check_statistics(bench, "SNAPPY")
    upsert(bench, rows(1, 2))
    check_statistics(bench, "SNAPPY")
    table_of(bench).append(rows(3), Stamp())
    table_of(bench).compact(1 << 20, Stamp())
    check_statistics(bench, "ZSTD")
    table_of(bench).alter(Altered([], {}, {"narrow": pa.decimal128(20, 2)}, frozenset()), Stamp())
    check_statistics(bench, "SNAPPY")


def check_statistics(bench: DeltaBench, compression: str) -> None:
    """All else is as delta-rs writes it by itself."""
    for uri in bench.native.file_uris():
        group = pq.read_metadata(uri.removeprefix("file://")).row_group(0)
        found = {group.column(n).path_in_schema: group.column(n) for n in range(group.num_columns)}
        assert {name for name, each in found.items() if each.statistics is None} == {"double", "float"}
        assert not any(found[name].has_column_index for name in ("double", "float"))
        assert {each.compression for each in found.values()} == {compression}
        least = found["text"].statistics.min_raw if found["text"].statistics.has_min_max else b""
        assert len(least) <= TEXT_MAX


@pytest.mark.parametrize(
    "name", ["old", "new", "c0", "c1", "a1", "gone", "partial", "at", "s", "t", "a.b", 'a"b', "a`b"]
)
@pytest.mark.parametrize("kind", [DeltaBench, IcebergBench])
@pytest.mark.parametrize("is_key", [True, False], ids=["key", "value"])
def test_a_column_may_have_any_name(tmp_path: Path, kind: type, name: str, is_key: bool) -> None:
    names = (name, "v") if is_key else ("k", name)

    class Bench(kind):  # type: ignore[misc, valid-type] # one of the two
        columns = pa.schema([pa.field(names[0], pa.int64(), nullable=False), pa.field(names[1], pa.string())])

    bench = Bench(tmp_path, appends=False)

    def change(key: int, value: str, **flags: bool) -> None:
        staged = {column(0): pa.array([key], pa.int64()), column(1): [value], GONE: [False]}
        staged |= {flag: [is_set] for flag, is_set in flags.items()}
        table_of(bench).upsert(Upserts(pa.table(staged), names, names[:1]), Stamp())

    change(1, "a")
    change(2, "b")
    change(1, "c")
    change(1, "not written", **{absent_column(1): True})
    change(2, "", **{GONE: True})
    assert [tuple(row.values()) for row in bench.records()] == [(1, "c")]
