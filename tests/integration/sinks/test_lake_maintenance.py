"""Maintenance of lake tables: fewer files, the same rows, also for readers of old versions, and no zombie's commit."""

import gzip
import json
import os
import shutil
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from msgspec.structs import replace

from headgate.config.crash_points import CrashPoint
from headgate.config.maintenance_options import MaintenanceOptions
from headgate.databases.key_ranges import Chunk
from headgate.sinks.contract import SinkFencedError
from headgate.sinks.delta.engine import DeltaLakeTable
from headgate.sinks.iceberg.rewriting import Rewriting
from headgate.sinks.maintaining import upkeep_of
from integration.sinks.contract import SECONDS_MAX, batch_of, claim_of, delete, upsert
from integration.sinks.delta_bench import DeltaBench
from integration.sinks.iceberg_bench import IcebergBench, new_catalog
from integration.sinks.lake_contract import LakeBench

pytestmark = pytest.mark.integration

DEFAULT = upkeep_of(MaintenanceOptions())
NOTHING = replace(DEFAULT, keep=timedelta(0), orphans=timedelta(0))


@pytest.fixture(params=[DeltaBench, IcebergBench], ids=["delta", "iceberg"])
def bench(tmp_path: Path, request: pytest.FixtureRequest) -> LakeBench:
    return request.param(tmp_path, appends=True)


def filled(bench: LakeBench) -> None:
    claim = claim_of(bench, 1)
    bench.sink.claim(claim)
    for offset in range(5, 15):
        bench.sink.writer().apply(batch_of(claim, offset, upsert(offset, offset, "a")))


def data_files(bench: LakeBench) -> set[Path]:
    return set(bench.folder.rglob("*.parquet")) - set(bench.folder.rglob("*checkpoint*"))


def later() -> datetime:
    return datetime.now(UTC) + timedelta(seconds=1)


def test_small_files_become_one_and_the_rows_and_positions_stay(bench: LakeBench) -> None:
    filled(bench)
    claim, rows = claim_of(bench, 1), bench.records()
    done = bench.sink.maintain(claim, DEFAULT, later())
    assert (done.files_before, done.files_after, done.versions, done.removed) == (10, 1, 0, 0)
    assert done.bytes_before > done.bytes_after > 0
    assert sorted(map(repr, bench.records())) == sorted(map(repr, rows))
    assert bench.sink.positions(claim) == {0: 15, 1: 0}
    bench.sink.writer().apply(batch_of(claim, 15, delete(15, 5)))
    assert bench.rows() == dict.fromkeys(range(6, 15), "a")


def test_files_of_half_the_size_are_left_alone_and_small_ones_are_not(bench: LakeBench) -> None:
    filled(bench)
    claim = claim_of(bench, 1)
    whole = bench.sink.maintain(claim, DEFAULT, later())
    bench.sink.writer().apply(batch_of(claim, 15, upsert(15, 15, "a")))
    enough = replace(DEFAULT, target_bytes=whole.bytes_after + 100)
    done = bench.sink.maintain(claim, enough, later())
    assert (done.files_before, done.files_after) == (2, 2)
    done = bench.sink.maintain(claim, replace(DEFAULT, target_bytes=2 * done.bytes_after), later())
    assert (done.files_before, done.files_after) == (2, 1)


def test_the_table_remembers_when_it_was_maintained(bench: LakeBench) -> None:
    filled(bench)
    claim, then = claim_of(bench, 1), datetime.now(UTC) + timedelta(days=1)
    created = bench.sink.maintained_at(claim)
    assert created is not None
    assert timedelta(0) <= datetime.now(UTC) - created < timedelta(hours=1)
    bench.sink.maintain(claim, DEFAULT, then)
    assert bench.another().maintained_at(claim) == then.replace(microsecond=0)


def test_files_of_expired_versions_are_removed_and_those_that_none_names_are_kept_for_longer(bench: LakeBench) -> None:
    filled(bench)
    young = next(iter(data_files(bench))).with_name("of-another-job.parquet")
    young.write_bytes(b"half a file")
    done = bench.sink.maintain(
        claim_of(bench, 1), replace(DEFAULT, keep=timedelta(0), orphans=timedelta(days=1)), later()
    )
    assert done.removed >= 10
    assert young.exists()
    assert len(data_files(bench)) == 2


def test_files_that_no_kept_version_needs_are_removed(bench: LakeBench) -> None:
    filled(bench)
    orphan = next(iter(data_files(bench))).with_name("left-behind.parquet")
    orphan.write_bytes(b"half a file")
    os.utime(orphan, (0, 0))
    bench.sink.maintain(claim_of(bench, 1), DEFAULT, later())
    assert not orphan.exists()
    assert len(data_files(bench)) == 11
    bench.sink.maintain(claim_of(bench, 1), NOTHING, later())
    assert len(data_files(bench)) == 1
    assert bench.size() == 10
    bench.sink.writer().apply(batch_of(claim_of(bench, 1), 15, upsert(15, 15, "a")))
    assert bench.size() == 11


def test_files_of_another_table_in_the_folder_are_no_orphans(bench: LakeBench) -> None:
    filled(bench)
    orphan = next(iter(data_files(bench))).with_name("of-whom.parquet")
    orphan.write_bytes(b"half a file")
    if isinstance(bench, DeltaBench):
        other = orphan.parent / "orders"
        write_deltalake(other, pa.table({"id": [1]}))
    else:
        newest = max(bench.folder.rglob("*.metadata.json"))
        other = newest.with_name("00000-of-another-catalog.metadata.json")
        other.write_text(json.dumps(json.loads(newest.read_text()) | {"table-uuid": str(uuid4())}))
    for file in (orphan, other, *other.rglob("*")):
        os.utime(file, (0, 0))
    bench.sink.maintain(claim_of(bench, 1), NOTHING, later())
    assert orphan.exists()
    assert other.exists()
    if isinstance(bench, DeltaBench):
        assert DeltaTable(other).to_pyarrow_table().num_rows == 1
        shutil.rmtree(other)
    else:
        other.write_text("half a file")
        os.utime(other, (0, 0))
    assert bench.size() == 10
    bench.sink.maintain(claim_of(bench, 1), NOTHING, later())
    assert not orphan.exists()
    assert bench.size() == 10


def test_files_of_a_table_below_the_table_are_no_orphans(tmp_path: Path) -> None:
    bench = IcebergBench(tmp_path, appends=True)
    filled(bench)
    inner = bench.catalog.create_table(
        "shop.inner", bench.columns, location=f"{bench.native.location()}/data/inner"
    )  # as a namespace with the name of a table would have it
    inner.append(pa.table({"id": [1], "value": ["a"]}, schema=bench.columns))
    bench.sink.maintain(claim_of(bench, 1), NOTHING, later())
    assert bench.catalog.load_table("shop.inner").scan().to_arrow().num_rows == 1


def test_files_that_another_catalog_has_committed_to_the_table_are_no_orphans(tmp_path: Path) -> None:
    """Both have registered it before a feed has claimed it: two tables that share an id and files."""
    bench = IcebergBench(tmp_path, appends=True)
    for id_ in (1, 2):
        bench.native.append(pa.table([[id_], ["both"], *[[None]] * 5], schema=bench.native.schema().as_arrow()))
    sink, name = bench.elsewhere()
    filled(bench)
    theirs = claim_of(bench, 1, table=name)
    sink.claim(theirs)
    sink.writer().apply(batch_of(theirs, 5, upsert(5, 5, "theirs")))
    sink.maintain(theirs, NOTHING, later())
    assert bench.size() == 12
    bench.sink.maintain(claim_of(bench, 1), NOTHING, later())
    assert len([*sink.rows().rows_within(name, ["value"], ["id"], Chunk(None, None))]) == 3


@pytest.mark.parametrize("claimed_first", [False, True])
def test_files_that_jobs_of_another_catalog_have_committed_to_the_table_are_no_orphans(
    tmp_path: Path, claimed_first: bool
) -> None:
    """As of Spark, without a feed: the table there has this one's id, and no ledger, or this one's."""
    bench = IcebergBench(tmp_path, appends=True)
    row = pa.table([[1], ["both"], *[[None]] * 5], schema=bench.native.schema().as_arrow())
    bench.native.append(row)
    if claimed_first:
        filled(bench)
    _, name = bench.elsewhere()
    if not claimed_first:
        filled(bench)
    theirs = new_catalog(bench.uri, bench.warehouse, name="other").load_table(name)
    theirs.append(row)
    before = theirs.scan().to_arrow().num_rows
    bench.sink.maintain(claim_of(bench, 1), NOTHING, later())
    assert theirs.refresh().scan().to_arrow().num_rows == before == (12 if claimed_first else 2)


def test_metadata_of_former_versions_and_of_a_feeds_failed_commit_does_not_keep_files(tmp_path: Path) -> None:
    bench = IcebergBench(tmp_path, appends=True)
    with bench.native.transaction() as change:  # what is before stays, as engines have it by default
        change.set_properties({"write.metadata.previous-versions-max": "2"})
    bench.native.append(pa.table([[1], ["job"], *[[None]] * 5], schema=bench.native.schema().as_arrow()))
    filled(bench)
    newest = max(bench.folder.glob("shop/orders/metadata/*.metadata.json"))
    failed = json.loads(newest.read_text())
    failed["snapshots"].append(failed["snapshots"][-1] | {"snapshot-id": 1})
    failed["current-snapshot-id"] = failed["refs"]["main"]["snapshot-id"] = 1
    left = newest.with_name("00099-failed.metadata.json")
    left.write_text(json.dumps(failed))
    orphan = next(iter(data_files(bench))).with_name("left-behind.parquet")
    orphan.write_bytes(b"half a file")
    for file in (left, orphan):
        os.utime(file, (0, 0))
    bench.sink.maintain(claim_of(bench, 1), NOTHING, later())
    assert (orphan.exists(), left.exists(), bench.size()) == (False, False, 11)


def test_a_former_place_that_may_not_be_read_ends_the_search_for_versions(tmp_path: Path) -> None:
    bench = IcebergBench(tmp_path, appends=True)
    filled(bench)
    newest = max(bench.folder.glob("shop/orders/metadata/*.metadata.json"))
    moved = json.loads(newest.read_text())
    moved["metadata-log"][0]["metadata-file"] = "hdfs://elsewhere/00000.metadata.json"
    newest.write_text(json.dumps(moved))
    stray = newest.with_name("00099-stray.metadata.json")
    stray.write_text("{")
    os.utime(stray, (0, 0))
    bench.sink.maintain(claim_of(bench, 1), NOTHING, later())
    assert not stray.exists()


@pytest.mark.parametrize("name", ["00001-x.gz.metadata.json", "v1.metadata.json.gz", "00001-x.metadata.json"])
def test_metadata_of_another_table_is_known_however_it_is_written(tmp_path: Path, name: str) -> None:
    """Compressed, or as Headgate cannot read it; what was not written to its end is of no table."""
    bench = IcebergBench(tmp_path, appends=True)
    filled(bench)
    newest = max(bench.folder.glob("shop/orders/metadata/*.metadata.json"))
    whole = json.dumps(json.loads(newest.read_text()) | {"table-uuid": str(uuid4())}).encode()
    whole = gzip.compress(whole) if "gz" in name else b'{"table": "of a later version of the format"}'
    other, orphan = newest.with_name(name), newest.with_name("of-whom.avro")
    orphan.write_bytes(b"half a file")
    for content, stays in ((whole, True), (whole[:-10], False)):
        other.write_bytes(content)
        for file in (other, orphan):
            os.utime(file, (0, 0))
        bench.sink.maintain(claim_of(bench, 1), NOTHING, later())
        assert (other.exists(), orphan.exists()) == (stays, stays)


def test_a_process_that_was_overtaken_maintains_nothing(bench: LakeBench) -> None:
    filled(bench)
    bench.another().claim(claim_of(bench, 2))
    before = data_files(bench), bench.version()
    with pytest.raises(SinkFencedError):
        bench.sink.maintain(claim_of(bench, 1), NOTHING, later())
    assert (data_files(bench), bench.version()) == before


def test_a_commit_that_was_under_way_is_made_again_after_it(bench: LakeBench) -> None:
    filled(bench)
    claim = claim_of(bench, 1)
    with bench.freeze_at(CrashPoint.ROWS_SENT, batch_of(claim, 15, upsert(15, 15, "a"))) as frozen:
        bench.sink.maintain(claim, DEFAULT, later())
        frozen.send_signal(signal.SIGCONT)
        said, _ = frozen.communicate(timeout=SECONDS_MAX)
    assert said == "applied"
    assert (bench.rows(), bench.size()) == (dict.fromkeys(range(5, 16), "a"), 11)


def test_a_reader_of_a_version_that_is_kept_still_reads_it(bench: LakeBench) -> None:
    filled(bench)
    version, rows = bench.version(), bench.records()
    bench.sink.maintain(claim_of(bench, 1), DEFAULT, later())
    bench.sink.writer().apply(batch_of(claim_of(bench, 1), 15, upsert(15, 15, "a")))
    if isinstance(bench, IcebergBench):
        found = bench.native.scan(snapshot_id=version).to_arrow().to_pylist()
    else:
        import polars

        found = polars.read_delta(str(bench.folder / "shop" / "orders"), version=version).to_dicts()
    assert sorted(row["_offset"] for row in found) == sorted(row["_offset"] for row in rows)


@pytest.mark.parametrize("step", ["expire", "remove_unneeded"])
def test_maintenance_that_ends_between_two_steps_leaves_a_table_that_the_next_one_completes(
    bench: LakeBench, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(bench)
    table_class = type(bench.lake.table(bench.table))
    with monkeypatch.context() as patched:
        patched.setattr(table_class, step, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            bench.sink.maintain(claim_of(bench, 1), NOTHING, later())
    assert bench.size() == 10
    bench.sink.writer().apply(batch_of(claim_of(bench, 1), 15, upsert(15, 15, "a")))
    done = bench.another().maintain(claim_of(bench, 1), NOTHING, later())
    assert (done.files_after, len(data_files(bench)), bench.size()) == (1, 1, 11)


def test_a_job_that_takes_files_back_while_they_are_listed_keeps_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a restore does. The files are old enough to be removed, and the version that was read does not need them."""
    bench = DeltaBench(tmp_path, appends=True)
    filled(bench)
    bench.sink.maintain(claim_of(bench, 1), DEFAULT, later())
    log = Path(bench.path, "_delta_log")
    first = min(file for file in log.glob("*.json") if '"add"' in file.read_text())
    add = next(line for line in first.read_text().splitlines() if line.startswith('{"add"'))
    listed, taken_back = DeltaLakeTable._has_strange_folders, []

    def take_back(table: DeltaLakeTable) -> bool:
        if not taken_back:
            taken_back.append(log / f"{bench.version() + 1:020}.json")
            taken_back[0].write_text(f'{{"commitInfo":{{"operation":"WRITE"}}}}\n{add}\n')
        return listed(table)

    monkeypatch.setattr(DeltaLakeTable, "_has_strange_folders", take_back)
    done = bench.sink.maintain(claim_of(bench, 1), NOTHING, later())
    assert done.removed == 9
    assert DeltaTable(bench.path).to_pyarrow_table().num_rows == 11


def test_files_of_an_attempt_are_removed_only_once_it_cannot_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attempt has written its file, and its commit comes after the maintenance: it is refused, and repeated."""
    bench = IcebergBench(tmp_path, appends=True)
    filled(bench)
    bench.sink.maintain(claim_of(bench, 1), NOTHING, later())
    written, maintained = Rewriting.append, []

    def append(rewriting: Rewriting, *arguments: object) -> None:
        written(rewriting, *arguments)  # type: ignore[arg-type]
        if not maintained:
            maintained.append(bench.another().maintain(claim_of(bench, 1), NOTHING, later()))

    monkeypatch.setattr(Rewriting, "append", append)
    bench.sink.writer().apply(batch_of(claim_of(bench, 1), 15, upsert(15, 15, "a")))
    assert maintained[0].removed
    assert (bench.rows(), bench.size()) == (dict.fromkeys(range(5, 16), "a"), 11)
