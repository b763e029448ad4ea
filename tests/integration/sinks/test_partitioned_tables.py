"""Lake tables that are partitioned: rows are where their values say, whoever reads them, and are found again."""

import os
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Final
from unittest.mock import Mock, patch
from urllib.parse import quote

import polars
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from msgspec.structs import replace
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.partitioning import PartitionField as SpecField
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table as PyTable
from pyiceberg.transforms import IdentityTransform, Transform, TruncateTransform, VoidTransform, YearTransform
from pyiceberg.types import BinaryType, DateType, DoubleType, IcebergType, LongType, NestedField

from headgate.config.feed import SinkSpec
from headgate.config.maintenance_options import MaintenanceOptions
from headgate.config.partitioning import partition_fields
from headgate.databases.key_ranges import Chunk
from headgate.formats.change import CONNECTOR, Change, Operation
from headgate.sinks.contract import FeedIdentity, SinkRefusedError, SinkUnavailableError, ValueRefusedError
from headgate.sinks.creating import NewColumn, NewTable, parse_lake_type
from headgate.sinks.delta import engine
from headgate.sinks.iceberg import rewriting
from headgate.sinks.iceberg.rewriting import Rewriting
from headgate.sinks.iceberg.transaction import OneTransaction, overwrite
from headgate.sinks.lake.sink import LakeSink
from headgate.sinks.lake.tables import ValueBounds
from headgate.sinks.maintaining import upkeep_of
from headgate.sinks.registry import open_sink
from headgate.sinks.row_copying import CopiedRows, RowsRefusedError
from integration.sinks.contract import batch_of
from support import build

pytestmark = pytest.mark.integration

NAME: Final = "shop.orders"
TYPES: Final = {
    "id": "bigint", "part": "int", "region": "string", "day": "date", "at": "timestamp", "wall": "timestamp_ntz",
    "amount": "decimal(10,2)", "is_paid": "boolean", "note": "string",
}  # fmt: skip

ODD: Final = (
    "a=b", "a/b", "ü😀", "a b", "a%2Fb", "%", "'q'", 'd"q', "x\ny", "..", ":", "a\\b", "#?&", "null", "None", " lead",
    "\x01",
)  # fmt: skip
"""Texts that mean something in a path, in an expression or in a folder's name."""


class Bench:
    """One table in a lake of its own."""

    kind: str
    types: Mapping[str, str] = TYPES

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "lake"
        self.folder.mkdir()
        self.at = 0
        self.sinks = {mode: self._open(mode) for mode in ("upsert", "append")}

    def _open(self, mode: str) -> LakeSink:
        found = open_sink(SinkSpec.model_validate({"type": self.kind, "dsn": self.dsn, "mode": mode}))
        assert isinstance(found, LakeSink)
        return found

    @property
    def dsn(self) -> str:
        raise NotImplementedError

    def create(self, *by: str, key: tuple[str, ...] = ("id",), mode: str = "upsert") -> None:
        self.sink = self.sinks[mode]
        columns = [
            NewColumn(name, parse_lake_type(text) or pytest.fail(text), name not in key or mode == "append")
            for name, text in self.types.items()
        ]
        table = NewTable(NAME, tuple(columns), key, partitions=partition_fields(by))
        assert self.sink.partition_refusals(table) == ()
        assert self.sink.create(table)
        assert self.sink.partitions_of(NAME) == by
        self.key = key
        self.claim = build.claim(identity=FeedIdentity("c", "0-1", "f"), table=NAME)
        self.at = self.sink.claim(self.claim)[0]

    def apply(self, *rows: Mapping[str, object] | None, deleted: tuple[Mapping[str, object], ...] = ()) -> None:
        changes = [self._change(n, row) for n, row in enumerate(rows)]
        changes += [self._change(len(rows) + n, row, Operation.DELETE) for n, row in enumerate(deleted)]
        self.sink.writer().apply(batch_of(self.claim, self.at, *changes))
        self.at += len(changes)

    def _change(self, number: int, row: Mapping[str, object] | None, operation: Operation = Operation.UPSERT) -> Change:
        assert row is not None
        key = {name: row[name] for name in self.key}
        return Change(
            0, self.at + number, operation, key, dict(row) if operation is Operation.UPSERT else None, None, 0
        )

    def maintain(self) -> Any:
        upkeep = replace(upkeep_of(MaintenanceOptions()), keep=timedelta(0), orphans=timedelta(0))
        return self.sink.maintain(self.claim, upkeep, datetime.now(UTC) + timedelta(minutes=10))

    def data_files(self) -> set[Path]:
        found = (self.folder / "shop" / "orders").rglob("*.parquet")
        return {path for path in found if "checkpoint" not in path.name}

    def others(self) -> dict[str, list[dict[str, Any]]]:
        """As other engines have it."""
        raise NotImplementedError

    def rows(self) -> list[dict[str, Any]]:
        """What every engine reads, and that it is the same."""
        found = {name: sorted(rows, key=lambda row: (row["id"], row["part"])) for name, rows in self.others().items()}
        first = next(iter(found.values()))
        assert all(rows == first for rows in found.values()), found
        return first

    def files(self) -> Counter[str]:
        """Partition, as readers of folders see it → files that the newest version has."""
        raise NotImplementedError


class Delta(Bench):
    kind = "delta"

    @property
    def dsn(self) -> str:
        return f"file://{self.folder}"

    @property
    def native(self) -> DeltaTable:
        return DeltaTable(self.folder / "shop" / "orders")

    def others(self) -> dict[str, list[dict[str, Any]]]:
        return {
            "delta-rs": pa.RecordBatchReader.from_stream(self.native.scan()).read_all().to_pylist(),
            "pyarrow": self.native.to_pyarrow_table().to_pylist(),
            "polars": polars.read_delta(str(self.folder / "shop" / "orders")).to_dicts(),
        }

    def files(self) -> Counter[str]:
        return Counter(
            str(Path(uri).parent.relative_to(self.folder / "shop" / "orders")) for uri in self.native.file_uris()
        )


class Iceberg(Bench):
    kind = "iceberg"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.catalog = SqlCatalog("default", uri=f"sqlite:///{folder}/lake/c.db", warehouse=f"file://{folder}/lake")

    @property
    def dsn(self) -> str:
        return f"sqlite:///{self.folder}/c.db"

    @property
    def native(self) -> PyTable:
        return self.catalog.load_table(NAME)

    def others(self) -> dict[str, list[dict[str, Any]]]:
        return {
            "pyiceberg": self.native.scan().to_arrow().to_pylist(),
            "polars": self._polars(),
        }

    def _polars(self) -> list[dict[str, Any]]:
        with patch.dict(os.environ, {"POLARS_ICEBERG_PLANNER": "pyiceberg"}):  # it warns without its own
            return polars.scan_iceberg(self.native).collect().to_dicts()

    def files(self) -> Counter[str]:
        spec, schema = self.native.spec(), self.native.schema()
        return Counter(spec.partition_to_path(task.file.partition, schema) for task in self.native.scan().plan_files())


KINDS: Final = [pytest.param(Delta, id="delta"), pytest.param(Iceberg, id="iceberg")]


@pytest.fixture(params=KINDS)
def bench(tmp_path: Path, request: pytest.FixtureRequest) -> Bench:
    return request.param(tmp_path)


@pytest.fixture
def delta(tmp_path: Path) -> Delta:
    return Delta(tmp_path)


@pytest.fixture
def iceberg(tmp_path: Path) -> Iceberg:
    return Iceberg(tmp_path)


def row(id_: int, **values: object) -> dict[str, object]:
    return dict.fromkeys(TYPES) | {"id": id_, "part": 0} | values


def test_a_row_whose_partition_changes_leaves_its_old_file(bench: Bench) -> None:
    bench.create("region", "is_paid")
    bench.apply(*(row(n, region="eu" if n % 2 else "us", is_paid=False, note="a") for n in range(6)))
    bench.apply(
        row(1, region="us", is_paid=False, note="b"),
        row(3, region=None, is_paid=None, note="b"),
        row(5, region="eu", is_paid=False, note="b"),
    )
    found = {each["id"]: (each["region"], each["is_paid"], each["note"]) for each in bench.rows()}
    assert found == {
        0: ("us", False, "a"), 1: ("us", False, "b"), 2: ("us", False, "a"), 3: (None, None, "b"),
        4: ("us", False, "a"), 5: ("eu", False, "b"),
    }  # fmt: skip
    bench.apply(row(7, region="eu", is_paid=True), deleted=({"id": 1}, {"id": 3}))
    assert [each["id"] for each in bench.rows()] == [0, 2, 4, 5, 7]
    assert len(bench.files()) == 3
    bench.apply(deleted=({"id": 5}, {"id": 7}))
    assert {partition.split("/")[0] for partition in bench.files()} == {"region=us"}


def test_texts_of_all_kinds_are_partitions_and_are_maintained(bench: Bench) -> None:
    bench.create("region")
    texts = [*ODD, None]
    for n, text in enumerate(texts):
        bench.apply(row(n, region=text), row(100 + n, region=text))
        bench.apply(row(200 + n, region=text))
    bench.apply(*(row(n, region=text, note="b") for n, text in enumerate(texts)))
    before = bench.rows()
    assert [each["region"] for each in before] == texts * 3
    assert [each["note"] for each in before] == ["b"] * len(texts) + [None] * 2 * len(texts)
    done = bench.maintain()
    assert done.removed > 0
    assert bench.rows() == before
    files = bench.files()
    assert files.pop("region=null", 1) == (2 if isinstance(bench, Iceberg) else 1), "a text and NULL have one folder"
    assert set(files.values()) == {1}, "each partition is one file"
    there = bench.data_files()
    assert len(there) == len(texts), "and no other is left"
    bench.maintain()
    assert bench.data_files() == there, "nothing is left to be written together"


def test_files_are_found_while_other_threads_look_for_others(iceberg: Iceberg) -> None:
    """Between two questions about one manifest another thread asks about another one."""
    iceberg.create("region")
    for n, region in enumerate(("eu", "us")):
        iceberg.apply(row(n, region=region))
    table = iceberg.native
    snapshot = table.current_snapshot()
    assert snapshot is not None
    replacing = overwrite(OneTransaction(table), {})
    for task in table.scan().plan_files():
        replacing.delete_data_file(task.file)
    replacing._build_delete_files_partition_predicate()
    has_files = replacing._build_manifest_evaluator(table.spec().spec_id)
    manifests = snapshot.manifests(table.io)
    assert len(manifests) == 2

    class Disturbed(list[Any]):
        def __getitem__(self, at: Any) -> Any:
            for each in manifests:
                has_files(each)
            return super().__getitem__(at)

    for manifest in manifests:
        assert has_files(Mock(partitions=Disturbed(manifest.partitions)))


def test_dates_and_times_from_the_first_to_the_last_year(iceberg: Iceberg) -> None:
    """Times before 1970 are in the hour that they are in, and not in the one after it."""
    edges = [
        datetime(1, 1, 1),
        datetime(1969, 12, 31, 23, 59, 59, 999999),
        datetime(1970, 1, 1),
        datetime(9999, 12, 31, 23, 59, 59, 999999),
    ]
    iceberg.create("month(day)", "hour(at)", "day(wall)", "truncate(10, amount)")
    iceberg.apply(
        *(
            row(n, day=edge.date().isoformat(), at=f"{edge.isoformat()}Z", wall=edge.isoformat(), amount="-0.01")
            for n, edge in enumerate(edges)
        ),
        row(9),
    )
    found = iceberg.rows()
    assert [(each["day"], each["wall"], each["at"]) for each in found] == [
        *((edge.date(), edge, edge.replace(tzinfo=UTC)) for edge in edges),
        (None, None, None),
    ]
    assert sorted(iceberg.files()) == [
        "day_month=0001-01/at_hour=0001-01-01-00/wall_day=0001-01-01/amount_trunc=-0.10",
        "day_month=1969-12/at_hour=1969-12-31-23/wall_day=1969-12-31/amount_trunc=-0.10",
        "day_month=1970-01/at_hour=1970-01-01-00/wall_day=1970-01-01/amount_trunc=-0.10",
        "day_month=9999-12/at_hour=9999-12-31-23/wall_day=9999-12-31/amount_trunc=-0.10",
        "day_month=null/at_hour=null/wall_day=null/amount_trunc=null",
    ]
    iceberg.apply(*(row(n, note="moved") for n in range(4)))
    assert sorted(iceberg.files()) == ["day_month=null/at_hour=null/wall_day=null/amount_trunc=null"]


def test_dates_and_numbers_are_partitions_of_delta(delta: Delta) -> None:
    delta.create("day", "part", "wall")
    edges = [datetime(1, 1, 1), datetime(1969, 12, 31, 23, 59, 59, 999999), datetime(9999, 12, 31)]
    delta.apply(
        *(row(n, day=edge.date().isoformat(), part=-n, wall=edge.isoformat()) for n, edge in enumerate(edges)),
        row(9, part=None),
    )
    assert [
        (each["day"], each["part"], each["wall"])
        for each in sorted(delta.others()["polars"], key=lambda each: each["id"])
    ] == [
        *((edge.date(), -n, edge) for n, edge in enumerate(edges)),
        (None, None, None),
    ]
    delta.apply(row(0, part=5), row(9, day="2020-01-01", part=5))
    assert [(each["id"], each["day"], each["part"]) for each in delta.rows()] == [
        (0, None, 5), (1, date(1969, 12, 31), -1), (2, date(9999, 12, 31), -2), (9, date(2020, 1, 1), 5),
    ]  # fmt: skip


def test_a_tables_changes_are_partitioned_too(bench: Bench) -> None:
    by = ("day(_committed_at)", "region") if isinstance(bench, Iceberg) else ("_operation", "region")
    bench.create(*by, mode="append")
    bench.apply(row(1, region="eu"), row(2, region=None))
    bench.apply(row(1, region="us"), deleted=({"id": 2},))
    found = sorted(
        (each["id"], each["_offset"], each["region"], each["_operation"]) for each in bench.others()["polars"]
    )
    assert found == [(1, 0, "eu", "upsert"), (1, 2, "us", "upsert"), (2, 1, None, "upsert"), (2, 3, None, "delete")]
    assert bench.maintain().files_after == (3 if isinstance(bench, Iceberg) else 4)


def test_rows_are_copied_and_read_by_ranges(bench: Bench) -> None:
    bench.create("region")
    given = [{"id": str(n), "part": "0", "region": text} for n, text in enumerate([*ODD, None])]
    semantics = {CONNECTOR: "postgresql"} | dict.fromkeys(TYPES, "text")

    def copy(rows: list[dict[str, str | None]]) -> None:
        bench.sink.writer().copy(
            CopiedRows(
                claim=bench.claim, positions={0: bench.at}, key=("id",), upserts=rows, deletes=[], semantics=semantics
            )
        )

    copy(given)
    copy([{**each, "region": "one"} for each in given[:3]])
    assert [each["region"] for each in bench.rows()] == ["one"] * 3 + [*ODD[3:], None]
    read = bench.sink.rows().rows_within(NAME, ["region"], ["id"], Chunk(None, None))
    assert sorted(int(each[0]) for each in read) == list(range(len(given)))
    with pytest.raises(RowsRefusedError, match="too long for a folder's name"):
        copy([{"id": "99", "part": "0", "region": "x" * 300}])


def test_a_text_that_is_no_folders_name_is_refused(bench: Bench) -> None:
    bench.create("region")
    longest = "x" * (255 - len("region="))
    bench.apply(row(1, region=longest))
    for text in (longest + "x", "ü" * 90):
        with pytest.raises(ValueRefusedError, match=r"column region.*too long for a folder's name \(255 bytes"):
            bench.apply(row(2, region=text))
    assert [each["region"] for each in bench.rows()] == [longest]


@pytest.mark.parametrize("letter", ["=", "/", "%", " ", "日", "😀"])
def test_a_text_whose_escapes_are_too_long_is_refused(bench: Bench, letter: str) -> None:
    bench.create("region")
    escaped = len(quote(letter, safe=""))
    longest = letter * ((255 - len("region=")) // escaped)
    bench.apply(row(1, region=longest))
    with pytest.raises(ValueRefusedError, match=r"column region.*too long for a folder's name"):
        bench.apply(row(2, region=longest + letter))
    assert [each["region"] for each in bench.rows()] == [longest]
    bench.apply(row(1, region=longest, note="b"))
    assert [each["note"] for each in bench.rows()] == ["b"]


def test_the_fields_name_is_what_a_folder_begins_with(iceberg: Iceberg) -> None:
    iceberg.create("truncate(300, region)")
    longest = "x" * (255 - len("region_trunc="))
    iceberg.apply(row(1, region=longest))
    with pytest.raises(ValueRefusedError, match="too long for a folder's name"):
        iceberg.apply(row(2, region=longest + "x"))
    assert [each["region"] for each in iceberg.rows()] == [longest]


def test_binaries_are_folders_names_of_their_base64(iceberg: Iceberg) -> None:
    unwritable(iceberg, BinaryType(), IdentityTransform())
    iceberg.key, iceberg.claim = ("id",), build.claim(identity=FeedIdentity("c", "0-1", "f"), table=NAME)
    iceberg.at = iceberg.sink.claim(iceberg.claim)[0]
    iceberg.apply({"id": 1, "x": b"a" * 186})
    with pytest.raises(ValueRefusedError, match="too long for a folder's name"):
        iceberg.apply({"id": 2, "x": b"a" * 189})


def test_a_file_system_with_shorter_names_shows_no_value(iceberg: Iceberg) -> None:
    iceberg.create("region")
    failure = OSError(36, "File name too long", "/lake/shop/orders/data/region=secret/0.parquet")
    with (
        patch.object(rewriting, "_dataframe_to_data_files", side_effect=failure),
        pytest.raises(SinkRefusedError, match="a file's name is longer than the file system takes") as refused,
    ):
        iceberg.apply(row(1, region="secret"))
    assert "secret" not in str(refused.value)


def test_an_error_about_a_file_does_not_have_its_partitions_values(iceberg: Iceberg) -> None:
    iceberg.create("region")
    failure = OSError(5, "Input/output error", "/lake/shop/orders/data/region=secret/at_day=2020-01-01/0.parquet")
    with (
        patch.object(rewriting, "_dataframe_to_data_files", side_effect=failure),
        pytest.raises(SinkUnavailableError, match=r"data/region=…/at_day=…/0\.parquet"),
    ):
        iceberg.apply(row(1, region="secret"))


@pytest.mark.parametrize(
    ("by", "column", "fits", "refused"),
    [
        ("truncate(10, id)", "id", -(2**63) + 8, -(2**63)),
        ("truncate(10, part)", "part", -(2**31) + 8, -(2**31)),
        ("truncate(2147483647, part)", "part", 0, 1),
        ("truncate(2147483647, id)", "id", -(2**63) + 2**31, -(2**63)),
    ],
)
def test_an_integer_that_cannot_be_truncated_is_refused(
    iceberg: Iceberg, by: str, column: str, fits: int, refused: int
) -> None:
    """The library overflows: scans with bounds do not find such a row."""
    iceberg.create(by)
    iceberg.apply(row(1) | {column: fits})
    table = iceberg.sink.lake().table(NAME)
    assert table is not None
    found = table.scan([column], ValueBounds(column, low=fits, high=fits))
    assert [each[column] for batch in found for each in batch.to_pylist()] == [fits]
    with pytest.raises(ValueRefusedError, match=r"cannot be truncated within the column's type.*bucket\(16, …\)"):
        iceberg.apply(row(2) | {column: refused})


@pytest.mark.parametrize("mode", ["upsert", "append"])
@pytest.mark.parametrize("by", ["bucket(3, amount)", "truncate(10, amount)", "amount"])
@pytest.mark.parametrize("rows", [1, 2, 3, 4, 5, 6, 7, 10, 33])
def test_decimals_are_where_rust_takes_them(iceberg: Iceberg, by: str, mode: str, rows: int) -> None:
    iceberg.create(by, key=("amount", "id"), mode=mode)
    given = [row(n, amount=f"{n}.5", note="x" * n, region="r" * (n % 7)) for n in range(rows)]
    iceberg.apply(*given)
    iceberg.apply(*({**each, "note": "new"} for each in given))
    iceberg.maintain()
    found = iceberg.others()["pyiceberg"]
    assert len(found) == (rows if mode == "upsert" else 2 * rows)
    assert sum(each["note"] == "new" for each in found) == rows


def test_a_panic_is_an_error_of_the_sink(bench: Bench) -> None:
    """It is no Exception, and each library has a class of its own."""
    panic = type("PanicException", (BaseException,), {"__module__": "pyo3_runtime"})
    bench.create("region")
    with (
        patch.object(rewriting, "_dataframe_to_data_files", side_effect=panic("secret")),
        patch.object(engine.DeltaTable, "merge", side_effect=panic("secret")),
        pytest.raises(SinkRefusedError, match=r"under epoch .*a library of lake tables panicked") as refused,
    ):
        bench.apply(row(1, region="secret"))
    assert "secret" not in str(refused.value)
    bench.apply(row(1, region="eu"))
    assert [each["region"] for each in bench.rows()] == ["eu"]


def test_an_interrupt_is_no_panic(bench: Bench) -> None:
    with pytest.raises(KeyboardInterrupt), bench.sinks["upsert"].lake().as_sink_errors("doing"):
        raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("column", "values"),
    [
        ("part", [-5, 0, 7, -(2**31)]),
        ("region", list(ODD)),
        ("day", ["0001-01-01", "1969-12-31", "2020-02-29"]),
        ("wall", ["1969-12-31T23:59:59.999999", "2020-01-01T00:00:00", "1900-01-01T01:02:03.5"]),
        ("is_paid", [True, False]),
    ],
)
def test_a_partition_in_the_key_finds_its_rows(bench: Bench, column: str, values: list[object]) -> None:
    found_again(bench, column, column, values)


@pytest.mark.parametrize(
    ("by", "column", "values"),
    [
        ("amount", "amount", ["-1.50", "-0.01", "0.00", "12345678.90"]),
        ("truncate(10, amount)", "amount", ["-1.50", "-0.01", "0.00", "12345678.90"]),
        ("truncate(1, region)", "region", list(ODD)),
        ("bucket(3, region)", "region", list(ODD)),
        ("hour(at)", "at", ["1969-12-31T23:59:59.999999Z", "2020-01-01T00:00:00Z", "1900-01-01T01:02:03.5Z"]),
        ("at", "at", ["1969-12-31T23:59:59.999999Z", "2020-01-01T00:00:00Z", "1900-01-01T01:02:03.5Z"]),
        ("month(wall)", "wall", ["1969-12-31T23:59:59.999999", "2020-01-01T00:00:00"]),
    ],
)
def test_a_transform_in_the_key_finds_its_rows(iceberg: Iceberg, by: str, column: str, values: list[object]) -> None:
    found_again(iceberg, by, column, values)


def found_again(bench: Bench, by: str, column: str, values: list[object]) -> None:
    """Rows that differ in one column of the key are written, updated and deleted."""
    bench.create(by, key=("id", column))
    given = [row(1) | {column: value} for value in values]
    bench.apply(*given)
    bench.apply(*({**each, "note": "b"} for each in given))
    assert [each["note"] for each in bench.rows()] == ["b"] * len(values)
    bench.apply(*({**each, "note": "c"} for each in given[1:]), deleted=({"id": 1, column: values[0]},))
    assert [each["note"] for each in bench.rows()] == ["c"] * (len(values) - 1)


def test_a_text_that_is_cut_is_as_long_as_it_likes(iceberg: Iceberg) -> None:
    iceberg.create("truncate(2, region)")
    iceberg.apply(row(1, region="ü" * 300), row(2, region=""))
    assert [each["region"] for each in iceberg.rows()] == ["ü" * 300, ""]


def test_texts_that_delta_reads_as_null_are_refused(delta: Delta) -> None:
    delta.create("region")
    for text, said in (("", "empty"), ("__HIVE_DEFAULT_PARTITION__", "__HIVE_DEFAULT_PARTITION__")):
        with pytest.raises(ValueRefusedError, match=f"the text is {said}, which readers take for NULL"):
            delta.apply(row(1, region=text))
    delta.apply(row(1, region=None, note=""))
    assert [each["note"] for each in delta.rows()] == [""]


def read_files(bench: Iceberg, apply: Callable[[], None]) -> int:
    """How many data files were read by it."""
    real, read = Rewriting._rows_of, []

    def counted(self: Rewriting, task: Any) -> pa.Table:
        read.append(task)
        return real(self, task)

    with patch.object(Rewriting, "_rows_of", counted):
        apply()
    return len(read)


@pytest.mark.parametrize(("by", "files"), [("bucket(64, part)", 1), ("part", 1), ("truncate(1, part)", 1), ("note", 8)])
def test_only_partitions_that_may_have_a_key_are_read(iceberg: Iceberg, by: str, files: int) -> None:
    """Bounds do not help: each file has the same range of the key's first column. A column outside of the key may have
    changed, so its partitions do not help either.
    """
    iceberg.create(by, key=("id", "part"))
    iceberg.apply(*(row(id_, part=part, note=str(part)) for part in range(8) for id_ in (0, 9)))
    assert len(iceberg.files()) == 8
    assert read_files(iceberg, lambda: iceberg.apply(row(9, part=3, note="new"))) == files
    assert [each["part"] for each in iceberg.rows() if each["note"] == "new"] == [3]
    assert len(iceberg.rows()) == 16


def test_files_of_a_former_spec_are_searched_by_it(iceberg: Iceberg) -> None:
    """A user has divided the table anew: rows are found in files of both specs."""
    iceberg.create("bucket(4, id)")
    iceberg.apply(*(row(n, region="eu") for n in range(8)))
    with iceberg.native.update_spec() as update:
        update.remove_field("id_bucket")
        update.add_field("id", TruncateTransform(3), "id_trunc")
    iceberg.apply(*(row(n, region="us") for n in range(4, 12)))
    iceberg.apply(row(1, note="b"), row(5, note="b"), row(11, note="b"), deleted=({"id": 2}, {"id": 6}))
    found = iceberg.rows()
    assert [each["id"] for each in found] == [0, 1, 3, 4, 5, 7, 8, 9, 10, 11]
    assert [each["id"] for each in found if each["note"] == "b"] == [1, 5, 11]


def unwritable(iceberg: Iceberg, type_: IcebergType, transform: Transform[Any, Any]) -> None:
    """A table of a user's."""
    schema = Schema(
        NestedField(1, "id", LongType(), required=True), NestedField(2, "x", type_), identifier_field_ids=[1]
    )
    iceberg.catalog.create_namespace_if_not_exists("shop")
    iceberg.catalog.create_table(
        NAME,
        schema,
        partition_spec=PartitionSpec(SpecField(2, 1000, transform, "x_part")),
        properties={"format-version": "2"},
    )
    iceberg.sink = iceberg.sinks["upsert"]
    iceberg.sink.check([NAME])


@pytest.mark.parametrize(
    ("type_", "transform", "why"),
    [
        (DoubleType(), IdentityTransform(), "partitions of Iceberg tables cannot be of type double"),
        (BinaryType(), TruncateTransform(3), "truncate of Iceberg tables cannot be of type binary"),
        (DateType(), VoidTransform(), "does not write Iceberg tables with the transform void"),
    ],
)  # fmt: skip
def test_a_users_table_whose_rows_pyiceberg_would_lose_is_refused(
    iceberg: Iceberg, type_: IcebergType, transform: Transform[Any, Any], why: str
) -> None:
    with pytest.raises(
        SinkRefusedError, match=rf"table shop\.orders is partitioned by .*, and it cannot be written.*{why}"
    ):
        unwritable(iceberg, type_, transform)


def test_a_users_table_with_a_transform_is_written(iceberg: Iceberg) -> None:
    unwritable(iceberg, DateType(), YearTransform())
    iceberg.key, iceberg.claim = ("id",), build.claim(identity=FeedIdentity("c", "0-1", "f"), table=NAME)
    iceberg.at = iceberg.sink.claim(iceberg.claim)[0]
    iceberg.apply({"id": 1, "x": "1969-12-31"}, {"id": 2, "x": None})
    iceberg.apply({"id": 1, "x": "2020-01-01"})
    assert sorted(iceberg.files()) == ["x_part=2020", "x_part=null"]


def test_rows_that_a_library_loses_are_noticed(iceberg: Iceberg) -> None:
    iceberg.create("region")
    real = rewriting._dataframe_to_data_files
    with (
        patch.object(rewriting, "_dataframe_to_data_files", lambda *args, **named: list(real(*args, **named))[1:]),
        pytest.raises(SinkRefusedError, match=r"2 rows were divided by its partitions into 1\. pyiceberg lost some"),
    ):
        iceberg.apply(row(1, region="eu"), row(2, region="us"))
    assert iceberg.others()["polars"] == []
    left = {path.parent.name for path in iceberg.data_files()}
    assert left == {"region=eu"}, "the file that the library did not say is left; the other one is removed"


@pytest.mark.parametrize("type_", ["binary", "decimal(10, 2)", "double", "timestamp"])
def test_a_users_delta_table_whose_partitions_are_written_as_others_is_refused(delta: Delta, type_: str) -> None:
    arrow = {"binary": pa.binary(), "double": pa.float64(), "timestamp": pa.timestamp("us", "UTC")}.get(
        type_, pa.decimal128(10, 2)
    )
    DeltaTable.create(
        delta.folder / "shop" / "orders", pa.schema([("id", pa.int64()), ("x", arrow)]), partition_by=["x"]
    )
    with pytest.raises(
        SinkRefusedError, match=r"is partitioned by \[x\], and it cannot be written: x: partitions of Delta"
    ):
        delta.sinks["upsert"].check([NAME])
