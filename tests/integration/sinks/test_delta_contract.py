"""Delta tables keep the contract of every sink, and what is their own: other processes, frozen or killed."""

import signal
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from deltalake import DeltaTable, write_deltalake

from headgate.config.crash_points import CrashPoint
from headgate.formats.change import ABSENT, Change, Operation
from headgate.sinks.contract import (
    ChangeBatch,
    ConstraintViolatedError,
    OffsetRange,
    SinkFencedError,
    SinkRefusedError,
    SinkWriter,
    ValueRefusedError,
)
from headgate.sinks.on_driver import Commit
from integration.sinks.contract import FEED, SECONDS_MAX, SinkContract, batch_of, claim_of, delete, upsert
from integration.sinks.delta_bench import DeltaBench

pytestmark = pytest.mark.integration


@pytest.fixture(params=["upsert", "append"])
def bench(tmp_path: Path, request: pytest.FixtureRequest) -> DeltaBench:
    return DeltaBench(tmp_path, appends=request.param == "append")


@pytest.fixture
def writer(bench: DeltaBench) -> Iterator[SinkWriter]:
    made = bench.sink.writer()
    yield made
    made.close()


class TestDelta(SinkContract):
    FROZEN_ENDS_AS = SinkFencedError.code  # it holds no session, and finds out when it commits

    @pytest.fixture
    def bench(self, bench: DeltaBench) -> DeltaBench:
        return bench

    @pytest.mark.skip(reason="there is no earlier version of this sink")
    def test_a_sink_of_before_source_tables_were_kept_is_taken_on(self) -> None: ...

    def test_a_truncate_is_refused_by_whoever_has_a_part_of_the_table(
        self, bench: DeltaBench, writer: SinkWriter
    ) -> None:
        """And by a topic of one partition, too."""
        alone = claim_of(bench, 4, topic="shop.public.alone", start={0: 0})
        bench.sink.claim(alone)
        truncate = Change(0, 0, Operation.TRUNCATE, {}, None, None, 0)
        with pytest.raises(ValueRefusedError, match=r"TRUNCATE cannot be written to a Delta table.*offset 0"):
            writer.apply(ChangeBatch(alone, {0: OffsetRange(0, 1)}, [truncate]))

    def test_a_table_that_is_gone_can_be_closed(self, bench: DeltaBench, writer: SinkWriter) -> None:
        """Its positions are gone with it, so nothing is written to another one in its place."""
        claim, closing = claim_of(bench, 1), claim_of(bench, 2)
        bench.sink.claim(claim)
        writer.apply(batch_of(claim, 5, upsert(5, 1, "a")))
        bench.drop()
        for table in ("gone", "another"):
            if table == "another":
                DeltaBench(bench.folder.parent, appends=bench.appends)
            with pytest.raises(SinkRefusedError, match=r"restore its folder|deleted and re-created"):
                writer.apply(batch_of(claim, 6, upsert(6, 1, "b")))
            with pytest.raises(SinkRefusedError, match=r"resume shop --from earliest"):
                bench.sink.prepare(closing, 2)
        bench.sink.claim(closing)
        bench.sink.seal(closing)
        bench.sink.forget(FEED)
        with pytest.raises(SinkFencedError, match="was removed"):
            bench.sink.claim(claim_of(bench, 3))
        assert bench.rows() == {}


@pytest.mark.parametrize("point", [CrashPoint.ROWS_SENT, CrashPoint.COMMITTED])
def test_a_process_that_was_overtaken_while_frozen_finds_out_and_nothing_is_doubled(
    bench: DeltaBench, writer: SinkWriter, point: CrashPoint
) -> None:
    old = claim_of(bench, 1)
    bench.sink.claim(old)
    with bench.freeze_at(point, batch_of(old, 5, upsert(5, 1, "frozen"))) as frozen:
        other, new = bench.another(), claim_of(bench, 2)
        position = other.claim(new)[0]
        assert position == (6 if point is CrashPoint.COMMITTED else 5)
        other.writer().apply(batch_of(new, position, upsert(position, 2, "new")))
        frozen.send_signal(signal.SIGCONT)
        said, _ = frozen.communicate(timeout=SECONDS_MAX)
    assert said == ("applied" if point is CrashPoint.COMMITTED else "sink_fenced")
    assert bench.rows() == ({1: "frozen", 2: "new"} if point is CrashPoint.COMMITTED else {2: "new"})
    with pytest.raises(SinkFencedError, match=r"claimed since under epoch 3\.2"):
        writer.apply(batch_of(old, 6, upsert(6, 3, "zombie")))


@pytest.mark.parametrize("point", [CrashPoint.ROWS_SENT, CrashPoint.COMMITTED])
def test_what_a_killed_process_has_not_committed_is_written_by_the_next(bench: DeltaBench, point: CrashPoint) -> None:
    old = claim_of(bench, 1)
    bench.sink.claim(old)
    with bench.freeze_at(point, batch_of(old, 5, upsert(5, 1, "killed"))) as killed:
        killed.kill()
    new = claim_of(bench, 2)
    position = bench.sink.claim(new)[0]
    bench.sink.writer().apply(batch_of(new, position, upsert(position, 2, "new")))
    assert bench.rows() == ({1: "killed", 2: "new"} if point is CrashPoint.COMMITTED else {2: "new"})


def partial(offset: int, row_id: int) -> Change:
    """An update that leaves out the value, which has not changed."""
    row: dict[str, object] = {"id": row_id, "value": ABSENT}
    return Change(0, offset, Operation.UPSERT, {"id": row_id}, row, None, 0)


def test_an_update_without_unchanged_columns_keeps_their_values(tmp_path: Path) -> None:
    bench = DeltaBench(tmp_path, appends=False)
    claim, writer = claim_of(bench, 1), bench.sink.writer()
    bench.sink.claim(claim)
    writer.apply(batch_of(claim, 5, upsert(5, 1, "kept"), upsert(6, 2, None)))
    writer.apply(batch_of(claim, 7, partial(7, 1), upsert(8, 2, "b"), upsert(9, 3, "c"), partial(10, 3)))
    assert bench.rows() == {1: "kept", 2: "b", 3: "c"}
    with pytest.raises(ConstraintViolatedError, match=r"does not have the row.*partition 0, offset 12"):
        writer.apply(batch_of(claim, 11, upsert(11, 4, "d"), partial(12, 9)))
    assert (bench.rows(), bench.sink.positions(claim)) == ({1: "kept", 2: "b", 3: "c"}, {0: 11, 1: 0})


def test_parts_of_a_batch_that_tasks_staged_apart_are_folded(tmp_path: Path) -> None:
    bench = DeltaBench(tmp_path, appends=False)
    claim = claim_of(bench, 1)
    bench.sink.claim(claim)
    stager = bench.sink.stager()
    parts = [batch_of(claim, 5, upsert(5, 1, "a"), upsert(6, 2, "x")), batch_of(claim, 7, partial(7, 1), delete(8, 2))]
    payloads = [stager.stage(part).payload for part in parts]
    bench.sink.committer().commit(Commit(claim=claim, ranges={0: OffsetRange(5, 9)}, payloads=payloads))
    assert (bench.rows(), bench.sink.positions(claim)) == ({1: "a"}, {0: 9, 1: 0})


def test_a_row_to_append_cannot_leave_out_a_column(tmp_path: Path) -> None:
    bench = DeltaBench(tmp_path, appends=True)
    claim = claim_of(bench, 1)
    bench.sink.claim(claim)
    with pytest.raises(ValueRefusedError, match=r"column value: .*REPLICA IDENTITY FULL"):
        bench.sink.writer().apply(batch_of(claim, 5, partial(5, 1)))
    assert bench.rows() == {}


def test_a_users_own_job_in_the_middle_of_a_commit_does_not_stop_the_feed(
    bench: DeltaBench, writer: SinkWriter
) -> None:
    claim = claim_of(bench, 1)
    bench.sink.claim(claim)
    for offset in range(5, 8):
        writer.apply(batch_of(claim, offset, upsert(offset, offset, "a")))
    with bench.freeze_at(CrashPoint.ROWS_SENT, batch_of(claim, 8, upsert(8, 8, "a"))) as frozen:
        before = bench.version()
        DeltaTable(bench.path).optimize.compact()
        write_deltalake(bench.path, DeltaTable(bench.path).to_pyarrow_table().slice(0, 0), mode="append")
        assert bench.version() > before
        frozen.send_signal(signal.SIGCONT)
        said, _ = frozen.communicate(timeout=SECONDS_MAX)
    assert said == "applied"
    assert bench.rows() == dict.fromkeys(range(5, 9), "a")


def test_a_table_that_was_set_back_is_not_written_until_the_feed_begins_again(
    bench: DeltaBench, writer: SinkWriter
) -> None:
    claim = claim_of(bench, 1)
    bench.sink.claim(claim)
    writer.apply(batch_of(claim, 5, upsert(5, 5, "a")))
    first = bench.version()
    writer.apply(batch_of(claim, 6, upsert(6, 6, "a")))
    second = bench.version()
    DeltaTable(bench.path).restore(first)
    with pytest.raises(SinkRefusedError, match="set back to an earlier version"):
        writer.apply(batch_of(claim, 7, upsert(7, 7, "a")))
    with pytest.raises(SinkRefusedError, match="set back to an earlier version"):
        bench.sink.claim(claim_of(bench, 2))
    assert bench.rows() == {5: "a"}
    DeltaTable(bench.path).restore(second)
    writer.apply(batch_of(claim, 7, upsert(7, 7, "a")))
    assert bench.rows() == dict.fromkeys(range(5, 8), "a")
    DeltaTable(bench.path).restore(first)
    bench.sink.seal(claim)  # the feed can be paused
    again = msgspec.structs.replace(claim_of(bench, 3), incarnation=claim.incarnation + 1)
    assert bench.sink.claim(again)[0] == again.start[0]
    for offset in (5, 6):
        bench.sink.writer().apply(batch_of(again, offset, upsert(offset, offset, "b")))
    assert [row["value"] for row in bench.records()].count("b") == 2


def test_a_batch_that_changes_no_row_moves_the_positions(tmp_path: Path) -> None:
    """delta-rs does not commit such a merge, and reports no error."""
    bench = DeltaBench(tmp_path, appends=False)
    claim = claim_of(bench, 1)
    bench.sink.claim(claim)
    bench.sink.writer().apply(batch_of(claim, 5, delete(5, 1)))
    assert (bench.rows(), bench.sink.positions(claim)) == ({}, {0: 6, 1: 0})
