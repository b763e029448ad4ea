"""What is Iceberg's own: which files are rewritten, other jobs' commits, and tables that are refused."""

import re
import signal
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyiceberg.table
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.expressions import EqualTo
from pyiceberg.schema import Schema
from pyiceberg.table.locations import SimpleLocationProvider
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from headgate.config.crash_points import CrashPoint
from headgate.config.maintenance_options import MaintenanceOptions
from headgate.config.secrets import ALLOWED_FOLDERS
from headgate.config.sink_spec import SinkSpec
from headgate.formats.change import Change, Operation
from headgate.sinks.contract import ChangeBatch, OffsetRange, SinkMovedError, SinkRefusedError, ValueRefusedError
from headgate.sinks.maintaining import upkeep_of
from headgate.sinks.on_driver import Commit
from headgate.sinks.registry import open_sink
from integration.sinks.contract import SECONDS_MAX, batch_of, claim_of, delete, upsert
from integration.sinks.iceberg_bench import COLUMNS, IcebergBench

pytestmark = pytest.mark.integration

PROVIDER = "write.py-location-provider.impl"


@pytest.fixture
def bench(tmp_path: Path) -> IcebergBench:
    return IcebergBench(tmp_path, appends=False)


def files_of(bench: IcebergBench) -> dict[str, int]:
    """The table's files, with their rows."""
    return {task.file.file_path: task.file.record_count for task in bench.native.scan().plan_files()}


def written(bench: IcebergBench) -> set[str]:
    """Files of data on the disk, whether the table has them or not."""
    return {str(path) for path in bench.folder.rglob("*.parquet")}


def rows_of(ids: range) -> pa.Table:
    return pa.table([pa.array(ids, pa.int64()), pa.array(["old"] * len(ids), pa.string())], schema=COLUMNS)


def test_only_files_that_have_a_changed_row_are_rewritten(bench: IcebergBench) -> None:
    for first in (0, 100, 200):
        bench.native.append(rows_of(range(first, first + 100, 2)))
    before = files_of(bench)
    claim = claim_of(bench, 1)
    bench.sink.claim(claim)
    bench.sink.writer().apply(batch_of(claim, 5, upsert(5, 102, "new"), delete(6, 104), upsert(7, 201, "added")))
    after = files_of(bench)
    assert len(before.keys() & after.keys()) == 2  # 201 is between the keys of the third, which does not have it
    expected = {id_: "old" for id_ in range(0, 300, 2) if id_ != 104} | {102: "new", 201: "added"}
    assert bench.rows() == expected
    summary = bench.native.current_snapshot().summary  # type: ignore[union-attr]
    assert summary.additional_properties["headgate.positions"] == '{"shop.public.orders":{"0":8}}'  # type: ignore[union-attr]


def test_a_commit_does_not_copy_the_tables_versions_again_and_again(
    bench: IcebergBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pyiceberg by itself does 16 times, so commits grew slower with each version that is kept."""
    claim, copies = claim_of(bench, 1), 0
    bench.sink.claim(claim)
    bench.sink.writer().apply(batch_of(claim, 5, upsert(5, 1, "a")))
    original = pyiceberg.table.update_table_metadata

    def counted(*arguments: Any, **named: Any) -> Any:
        nonlocal copies
        copies += 1
        return original(*arguments, **named)

    monkeypatch.setattr(pyiceberg.table, "update_table_metadata", counted)
    bench.sink.writer().apply(batch_of(claim, 6, upsert(6, 1, "b")))
    assert 0 < copies <= 2
    assert bench.rows() == {1: "b"}


def test_overwrites_do_not_leave_manifests_without_files_behind(bench: IcebergBench) -> None:
    """Each later commit would read all of them, three times."""
    claim = claim_of(bench, 1)
    bench.sink.claim(claim)
    for offset in range(5, 13):
        bench.sink.writer().apply(batch_of(claim, offset, upsert(offset, 1, f"v{offset}")))
    snapshot = bench.native.current_snapshot()
    assert snapshot is not None
    assert len(snapshot.manifests(bench.native.io)) == 2  # of the file that was added, and the one that was replaced
    assert bench.rows() == {1: "v12"}


def test_what_a_refused_commit_has_written_is_removed(bench: IcebergBench) -> None:
    claim = claim_of(bench, 1)
    bench.sink.claim(claim)
    bench.native.append(rows_of(range(3)))
    before = written(bench)
    with bench.freeze_at(CrashPoint.ROWS_SENT, batch_of(claim, 5, upsert(5, 1, "frozen"))) as frozen:
        bench.another().claim(claim_of(bench, 2))
        frozen.send_signal(signal.SIGCONT)
        said, _ = frozen.communicate(timeout=SECONDS_MAX)
    assert said == "sink_fenced"
    assert written(bench) == before


def test_a_snapshot_that_was_left_and_came_back_does_not_let_a_frozen_process_commit(bench: IcebergBench) -> None:
    """The newest snapshot is then the one that the frozen process has read, and so would pyiceberg commit."""
    old = claim_of(bench, 1)
    bench.sink.claim(old)
    bench.sink.writer().apply(batch_of(old, 5, upsert(5, 1, "a")))
    with bench.freeze_at(CrashPoint.ROWS_SENT, batch_of(old, 6, upsert(6, 2, "frozen"))) as frozen:
        read = bench.version()
        new = claim_of(bench, 2)
        bench.sink.claim(new)
        bench.sink.writer().apply(batch_of(new, 6, upsert(6, 2, "new")))
        bench.set_back(read)
        frozen.send_signal(signal.SIGCONT)
        said, _ = frozen.communicate(timeout=SECONDS_MAX)
    assert said == "sink_fenced"
    assert bench.rows() == {1: "a"}


def test_a_user_who_appends_and_expires_snapshots_does_not_stop_the_feed(bench: IcebergBench) -> None:
    claim, writer = claim_of(bench, 1), bench.sink.writer()
    bench.sink.claim(claim)
    writer.apply(batch_of(claim, 5, upsert(5, 1, "a")))
    bench.native.append(rows_of(range(50, 52)))
    bench.native.maintenance.expire_snapshots().older_than(datetime.now(UTC)).commit()
    assert len(bench.native.metadata.snapshots) == 1
    writer.apply(batch_of(claim, 6, upsert(6, 50, "b")))
    assert bench.rows() == {1: "a", 50: "b", 51: "old"}


def test_a_column_that_is_added_while_a_batch_is_staged_is_noticed(bench: IcebergBench) -> None:
    claim = claim_of(bench, 1)
    bench.sink.claim(claim)
    staged = bench.sink.stager().stage(batch_of(claim, 5, upsert(5, 1, "a")))
    with bench.native.update_schema() as update:
        update.add_column("more", StringType())
    with pytest.raises(SinkMovedError, match="was altered while the batch was read"):
        bench.sink.committer().commit(Commit(claim=claim, ranges=staged.ranges, payloads=(staged.payload,)))
    bench.sink.writer().apply(batch_of(claim, 5, upsert(5, 1, "a")))
    assert bench.records() == [{"id": 1, "value": "a", "more": None}]


def test_rows_of_partitions_and_of_keys_with_two_columns_are_found(bench: IcebergBench) -> None:
    """Also where an update moves a row to another partition."""
    schema = Schema(
        NestedField(1, "shop", StringType(), required=True),
        NestedField(2, "id", LongType(), required=True),
        NestedField(3, "country", StringType()),
        identifier_field_ids=[1, 2],
    )
    table = bench.catalog.create_table("shop.parts", schema)
    with table.update_spec() as update:
        update.add_field("country", IdentityTransform())
    claim = claim_of(bench, 1, table="shop.parts")
    bench.sink.claim(claim)

    def change(offset: int, shop: str, country: str | None) -> Change:
        key: dict[str, object] = {"shop": shop, "id": 1}
        kind = Operation.DELETE if country is None else Operation.UPSERT
        return Change(0, offset, kind, key, None if country is None else key | {"country": country}, None, 0)

    writer = bench.sink.writer()
    writer.apply(batch_of(claim, 5, change(5, "a", "DE"), change(6, "b", "DE"), change(7, "c", "FR")))
    writer.apply(batch_of(claim, 8, change(8, "a", "FR"), change(9, "b", None)))
    found = bench.catalog.load_table("shop.parts").scan().to_arrow().to_pylist()
    assert sorted((row["shop"], row["country"]) for row in found) == [("a", "FR"), ("c", "FR")]
    assert table.refresh().scan(EqualTo("country", "DE")).to_arrow().num_rows == 0


def test_values_arrive_as_they_are_and_what_a_column_cannot_hold_is_refused(bench: IcebergBench) -> None:
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("small", pa.int32()),
            pa.field("amount", pa.decimal128(38, 10)),
            pa.field("ratio", pa.float64()),
            pa.field("ok", pa.bool_()),
            pa.field("day", pa.date32()),
            pa.field("at", pa.timestamp("us")),
            pa.field("instant", pa.timestamp("us", "UTC")),
            pa.field("raw", pa.binary()),
            pa.field("needed", pa.string(), nullable=False),
        ]
    )
    bench.catalog.create_table("shop.values", schema, properties={"headgate.key": '["id"]'})
    claim = claim_of(bench, 1, table="shop.values")
    bench.sink.claim(claim)
    row: dict[str, object] = {
        "id": 2**63 - 1,
        "small": -(2**31),
        "amount": "9999999999999999999999999999.9999999999",
        "ratio": 0.1,
        "ok": True,
        "day": "0001-01-01",
        "at": "9999-12-31T23:59:59.999999",
        "instant": "2026-01-01T01:00:00.000001+01:00",
        "raw": b"\x00\xff",
        "needed": "",
    }

    def applied(offset: int, **changed: object) -> None:
        change = Change(0, offset, Operation.UPSERT, {"id": row["id"]}, row | changed, None, 0)
        bench.sink.writer().apply(ChangeBatch(claim, {0: OffsetRange(offset, offset + 1)}, [change]))

    applied(5)
    (found,) = bench.catalog.load_table("shop.values").scan().to_arrow().to_pylist()
    assert found == row | {
        "amount": Decimal(str(row["amount"])),
        "day": date(1, 1, 1),
        "at": datetime(9999, 12, 31, 23, 59, 59, 999999),
        "instant": datetime(2026, 1, 1, 0, 0, 0, 1, UTC),
    }
    for name, value in {"small": 2**31, "amount": "0.00000000001", "needed": None}.items():
        with pytest.raises(ValueRefusedError, match=rf"column {name}"):
            applied(6, **{name: value})


# --- tables and catalogs that are refused ---


def test_a_table_whose_files_are_elsewhere_is_refused(
    bench: IcebergBench, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its metadata names the place, whatever sink.dsn is."""
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    key = {"headgate.key": '["id"]'}
    bench.catalog.create_table("shop.far", COLUMNS, location=f"file://{elsewhere}", properties=key)
    monkeypatch.setenv(ALLOWED_FOLDERS, str(bench.root))
    with pytest.raises(SinkRefusedError, match=rf"folder {elsewhere}/metadata is not below a folder"):
        bench.sink.claim(claim_of(bench, 1, table="shop.far"))
    assert not list(elsewhere.rglob("*.parquet"))


@pytest.mark.parametrize(
    ("table", "why"),
    [("orders", "has no namespace"), ('"a.b".c', "must not contain points"), ("shop.gone", "does not exist")],
)
def test_a_table_that_cannot_be_is_refused(bench: IcebergBench, table: str, why: str) -> None:
    with pytest.raises(SinkRefusedError, match=why):
        bench.sink.check([table])


def test_a_table_of_another_format_version_is_refused(bench: IcebergBench) -> None:
    bench.catalog.create_table("shop.first", COLUMNS, properties={"format-version": "1"})
    with pytest.raises(SinkRefusedError, match="has format version 1, and version 2 is supported"):
        bench.sink.check(["shop.first"])


class Provider(SimpleLocationProvider):
    """Code that a table's property names. pyiceberg imports and calls it when it writes."""

    calls = 0

    def __init__(self, location: str, properties: dict[str, str]) -> None:
        super().__init__(location, properties)
        type(self).calls += 1


def test_a_table_that_names_code_is_refused_and_the_code_is_not_run(bench: IcebergBench) -> None:
    claim = claim_of(bench, 1)
    bench.sink.claim(claim)
    with bench.native.transaction() as change:
        change.set_properties({PROVIDER: f"{Provider.__module__}.{Provider.__qualname__}"})
    before = Provider.calls
    for doing in (
        lambda: bench.sink.check([bench.table]),
        lambda: bench.another().claim(claim_of(bench, 2)),
        lambda: bench.sink.writer().apply(batch_of(claim, 5, upsert(5, 1, "a"))),
        lambda: bench.sink.maintain(claim, upkeep_of(MaintenanceOptions()), datetime.now(UTC)),
    ):
        with pytest.raises(SinkRefusedError, match=rf"table shop\.orders has the property {PROVIDER}, which names"):
            doing()
    assert Provider.calls == before


def test_a_file_that_is_not_a_catalog_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ALLOWED_FOLDERS, str(tmp_path))
    sink = open_sink(SinkSpec(type="iceberg", dsn=f"sqlite:///{tmp_path}/catalog.db"))
    with pytest.raises(SinkRefusedError, match=r"catalog\.db does not exist"):
        sink.check(["shop.orders"])
    assert not (tmp_path / "catalog.db").exists()
    (tmp_path / "catalog.db").touch()
    with pytest.raises(SinkRefusedError, match="is not an Iceberg catalog"):
        open_sink(SinkSpec(type="iceberg", dsn=f"sqlite:///{tmp_path}/catalog.db")).check(["shop.orders"])


def test_catalogs_of_one_file_are_kept_apart(bench: IcebergBench) -> None:
    SqlCatalog("second", uri=str(bench.spec["dsn"]), warehouse=f"file://{bench.folder}/second")
    bench.spec["dsn"] = f"{bench.spec['dsn']}?catalog=second"
    with pytest.raises(SinkRefusedError, match=r"catalog second in .* has no Iceberg table"):
        bench.another().check([bench.table])


def test_a_table_whose_files_are_of_another_format_is_refused(bench: IcebergBench) -> None:
    claim = claim_of(bench, 1)
    bench.sink.claim(claim)
    with bench.native.transaction() as transaction:
        transaction.set_properties({"write.format.default": "orc"})
    with pytest.raises(SinkRefusedError, match=r"write\.format\.default=orc, and pyiceberg only writes parquet"):
        bench.sink.check([bench.table])
    with pytest.raises(SinkRefusedError, match=r"Unset it"):
        bench.sink.writer().apply(batch_of(claim, 5, upsert(5, 1, "a")))
    with bench.native.transaction() as transaction:
        transaction.set_properties({"write.format.default": "PARQUET"})
    bench.sink.writer().apply(batch_of(claim, 5, upsert(5, 1, "a")))
    assert bench.rows() == {1: "a"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("write.parquet.row-group-limit", "0"),
        ("write.parquet.row-group-limit", "many"),
        ("write.parquet.page-size-bytes", "many"),
        ("write.parquet.compression-level", "best"),
        ("write.target-file-size-bytes", "1 GB"),
        ("write.metadata.metrics.default", "some"),
        ("write.metadata.metrics.column.value", "truncate(0)"),
        ("commit.retry.min-wait-ms", "soon"),
    ],
)
def test_a_property_that_the_library_cannot_read_is_refused(bench: IcebergBench, name: str, text: str) -> None:
    """Whether it is seen by the check, or has come later, with the claim or with a batch."""
    claim = claim_of(bench, 1)
    bench.sink.claim(claim)
    with bench.native.transaction() as transaction:
        transaction.set_properties({name: text})
    refused = rf"table shop\.orders has the property {re.escape(name)}='{re.escape(text)}'.*UNSET"
    with pytest.raises(SinkRefusedError, match=refused):
        bench.sink.check([bench.table])
    with pytest.raises(SinkRefusedError, match=refused):
        bench.sink.claim(claim_of(bench, 2))
    with pytest.raises(SinkRefusedError, match=refused):
        bench.sink.writer().apply(batch_of(claim, 5, upsert(5, 1, "a")))
