"""Files of Delta tables with timestamps as INT96, as Spark writes them by default."""

import json
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from headgate.sinks.contract import SinkRefusedError
from headgate.sinks.delta.engine import DeltaLakeTable, read
from headgate.sinks.delta.timestamps import RightFiles
from headgate.sinks.lake.files import LocalFiles
from headgate.sinks.lake.staged_rows import GONE, column
from headgate.sinks.lake.tables import Altered, Stamp, Upserts
from integration.sinks.lake_stores import PLACE, a_store

pytestmark = pytest.mark.integration

USUAL: Final = (datetime(1678, 1, 1, tzinfo=UTC), None, datetime(2261, 12, 31, 23, 59, 59, 999999, tzinfo=UTC))
FIRST: Final = datetime(1, 1, 1, tzinfo=UTC)
LAST: Final = datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)
NAME: Final = Path("orders")
BY: Final = "day part"
"""A column, and a folder of each value of it, whose name is written otherwise in the log."""


class Spark:
    """A table as a job of Spark's leaves it: one file, which does not tell Arrow's types."""

    def __init__(self, folder: Path, times: Sequence[datetime | None], *, zone: str | None = "UTC") -> None:
        self.folder, self.times, self.files = folder / NAME, times, LocalFiles(folder)
        self.type = pa.timestamp("us", zone)
        self.rows = pa.table({"id": range(len(times)), "at": self.column(times), BY: ["a b"] * len(times)})

    def column(self, times: Sequence[datetime | None]) -> pa.Array:
        bare = [time if time is None or self.type.tz else time.replace(tzinfo=None) for time in times]
        return pa.array(bare, self.type)

    def leave(self, *, is_int96: bool = True, without: tuple[str, ...] = (), partitions: bool = False) -> "Spark":
        """``without``: what the log does not tell of the file."""
        write_deltalake(str(self.folder), self.rows, partition_by=[BY] if partitions else None)
        log = self.folder / "_delta_log" / f"{0:020}.json"
        actions = [json.loads(line) for line in log.read_text().splitlines()]
        (added,) = (action["add"] for action in actions if "add" in action)
        file = self.folder / unquote(added["path"])
        columns = self.rows.drop_columns([BY]) if partitions else self.rows
        pq.write_table(columns, file, use_deprecated_int96_timestamps=is_int96, store_schema=False)
        added["size"] = file.stat().st_size
        told = json.loads(added["stats"])
        added["stats"] = json.dumps({name: each for name, each in told.items() if name not in without})
        log.write_text("\n".join(map(json.dumps, actions)))
        return self

    @property
    def table(self) -> DeltaLakeTable:
        found = read(self.files, NAME)
        assert found is not None
        return found

    def found(self) -> list[Any]:
        """The times, by pyarrow alone."""
        dataset = DeltaTable(str(self.folder)).to_pyarrow_dataset(
            parquet_read_options=pa.dataset.ParquetReadOptions(coerce_int96_timestamp_unit="us")
        )
        return [row["at"] for row in sorted(dataset.to_table().to_pylist(), key=lambda row: int(row["id"]))]

    def upsert(self) -> None:
        """Change the last row's time to NULL, and nothing else."""
        names = ["id", "at", BY]
        last = [len(self.times) - 1, None, "a b"]
        types = [pa.int64(), self.type, pa.string()]
        rows = {column(n): pa.array([value], type_) for n, (value, type_) in enumerate(zip(last, types, strict=True))}
        self.table.upsert(Upserts(pa.table({**rows, GONE: [False]}), tuple(names), ("id",)), Stamp())


def other(spark: Spark) -> list[Any]:
    return spark.column([*spark.times[:-1], None]).to_pylist()


def test_a_merge_does_not_change_years_that_nanoseconds_lack(tmp_path: Path) -> None:
    spark = Spark(tmp_path, (FIRST, *USUAL, LAST)).leave()
    with pytest.raises(
        SinkRefusedError, match=r"orders: file .*part-.* as INT96 in at, .*TIMESTAMP_MICROS.*INSERT"
    ) as told:
        spark.upsert()
    assert "9999-" not in str(told.value), "no value of a row"
    assert spark.table.version == 0
    assert spark.found() == spark.column(spark.times).to_pylist()


@pytest.mark.parametrize("zone", ["UTC", None])
@pytest.mark.parametrize("time", [FIRST, LAST])
@pytest.mark.parametrize("without", [(), ("minValues",), ("maxValues", "nullCount")])
def test_one_such_value_is_found(tmp_path: Path, zone: str | None, time: datetime, without: tuple[str, ...]) -> None:
    spark = Spark(tmp_path, (*USUAL, time), zone=zone).leave(without=without)
    with pytest.raises(SinkRefusedError, match="INT96"):
        spark.upsert()


@pytest.mark.parametrize("zone", ["UTC", None])
@pytest.mark.parametrize("without", [(), ("minValues",), ("maxValues", "nullCount"), ("numRecords",)])
@pytest.mark.parametrize("partitions", [False, True])
def test_others_are_merged(tmp_path: Path, zone: str | None, without: tuple[str, ...], partitions: bool) -> None:
    spark = Spark(tmp_path, (*USUAL, USUAL[0]), zone=zone).leave(without=without, partitions=partitions)
    spark.upsert()
    assert spark.found() == other(spark)


@pytest.mark.parametrize("partitions", [False, True])
def test_files_in_microseconds_are_merged(tmp_path: Path, partitions: bool) -> None:
    spark = Spark(tmp_path, (FIRST, *USUAL, LAST)).leave(is_int96=False, partitions=partitions)
    spark.upsert()
    assert spark.found() == other(spark)


@pytest.mark.parametrize("partitions", [False, True])
def test_a_partitions_folder_is_found(tmp_path: Path, partitions: bool) -> None:
    spark = Spark(tmp_path, (FIRST, LAST)).leave(partitions=partitions)
    with pytest.raises(SinkRefusedError, match="INT96"):
        spark.upsert()


READS: Final[tuple[Callable[[DeltaLakeTable], object], ...]] = (
    lambda table: table.keys(["at"]),
    lambda table: list(table.scan(["id", "at"], None)),
    lambda table: table.compact(2**20, Stamp()),
)


@pytest.mark.parametrize("reading", READS)
def test_no_read_by_delta_rs_takes_them(tmp_path: Path, reading: Callable[[DeltaLakeTable], object]) -> None:
    spark = Spark(tmp_path, (FIRST, LAST)).leave()
    with pytest.raises(SinkRefusedError, match="INT96"):
        reading(spark.table)


def test_other_columns_are_read(tmp_path: Path) -> None:
    spark = Spark(tmp_path, (FIRST, LAST)).leave()
    assert pa.table(spark.table.keys(["id"])).to_pydict() == {"id": [0, 1]}


def test_a_table_that_is_written_again_keeps_them(tmp_path: Path) -> None:
    """For a wider type pyarrow reads the rows, and the files are in microseconds then."""
    spark = Spark(tmp_path, (FIRST, *USUAL, LAST)).leave()
    spark.table.alter(Altered((), {}, {"id": pa.decimal128(20, 0)}, frozenset()), Stamp())
    assert spark.found() == spark.column(spark.times).to_pylist()
    assert [batch.num_rows for batch in spark.table.scan(["at"], None)] == [5]


def test_a_file_without_values_is_not_opened(tmp_path: Path) -> None:
    spark = Spark(tmp_path, (None, None)).leave()
    for file in spark.folder.glob("*.parquet"):
        file.unlink()
    check(spark, RightFiles())


def test_footers_are_read_once(tmp_path: Path) -> None:
    spark = Spark(tmp_path, (FIRST, LAST)).leave(is_int96=False)
    known, few = RightFiles(), RightFiles(judged_max=0)
    for files in (known, few):
        check(spark, files)
    for file in spark.folder.glob("*.parquet"):
        file.unlink()
    check(spark, known)
    with pytest.raises(OSError, match="part-"):
        check(spark, few)


def check(spark: Spark, files: RightFiles) -> None:
    files.check(DeltaTable(str(spark.folder)), str(spark.folder), None)


def test_a_table_without_files_is_right(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("at", pa.timestamp("us", "UTC"))])
    DeltaTable.create(str(tmp_path / NAME), schema)
    check(Spark(tmp_path, ()), RightFiles())


def test_footers_are_read_in_a_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where, rows = f"{PLACE}/{NAME}", pa.table({"at": pa.array([FIRST, LAST], pa.timestamp("us", "UTC"))})
    with a_store(tmp_path, monkeypatch) as store:
        write_deltalake(where, rows, storage_options=store.delta)
        handle = DeltaTable(where, storage_options=store.delta)
        RightFiles().check(handle, where, store.delta)
        store.remove(where)
        with pytest.raises(OSError, match="part-"):
            RightFiles().check(handle, where, store.delta)
