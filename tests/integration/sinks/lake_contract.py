"""The contract of lake tables: what other jobs do to a table, and rows that are not whole. Subclass, give ``bench``.

It contains the contract of sinks that commit on the driver.
"""

import signal
from typing import Protocol

import msgspec
import pytest

from headgate.config.crash_points import CrashPoint
from headgate.formats.change import ABSENT, Change, Operation
from headgate.sinks.contract import (
    ConstraintViolatedError,
    FeedIdentity,
    OffsetRange,
    SinkConflictError,
    SinkFencedError,
    SinkRefusedError,
    SinkWriter,
    ValueRefusedError,
)
from headgate.sinks.lake.sink import LakeSink
from headgate.sinks.lake.tables import Lake
from headgate.sinks.on_driver import Commit
from integration.sinks.contract import FEED, SECONDS_MAX, batch_of, claim_of, delete, upsert
from integration.sinks.on_driver_contract import DriverBench, OnDriverContract


class LakeBench(DriverBench, Protocol):
    """A lake with one table, and what its users can do to it."""

    sink: LakeSink
    lake: Lake
    appends: bool

    def create(self) -> None:
        """Create the table, which was dropped."""
        ...

    def records(self) -> list[dict[str, object]]:
        """Every row, as an engine reads it that is not Headgate's."""
        ...

    def version(self) -> int: ...

    def set_back(self, version: int) -> None: ...

    def compact(self) -> None:
        """Rewrite the table's files, and commit without changing a row."""
        ...

    def elsewhere(self) -> tuple[LakeSink, str]:
        """Another feed's sink that reaches the table as it is now by another place, and its name there."""
        ...

    def remove_ledger(self) -> None:
        """As a user who has lost ``_headgate``."""
        ...

    def unbind(self) -> None:
        """Remove the property that binds the table to its ledger, as an error advises."""
        ...


def partial(offset: int, row_id: int) -> Change:
    """An update that leaves out the value, which has not changed."""
    row: dict[str, object] = {"id": row_id, "value": ABSENT}
    return Change(0, offset, Operation.UPSERT, {"id": row_id}, row, None, 0)


class LakeContract(OnDriverContract):
    @staticmethod
    def completes_rows(bench: LakeBench) -> bool:  # type: ignore[override]
        """A row that is appended has nothing to take a value from."""
        return not bench.appends

    @pytest.fixture
    def bench(self) -> LakeBench:
        raise NotImplementedError

    @pytest.fixture
    def upserting(self, bench: LakeBench) -> LakeBench:
        """The bench with ``mode: upsert``."""
        if bench.appends:
            pytest.skip("of mode upsert")
        return bench

    @pytest.fixture(params=[CrashPoint.ROWS_SENT, CrashPoint.COMMITTED])
    def point(self, request: pytest.FixtureRequest) -> CrashPoint:
        return CrashPoint(request.param)

    def test_a_table_that_is_gone_can_be_closed(self, bench: LakeBench, writer: SinkWriter) -> None:
        """Its positions are gone with it, so nothing is written to another one in its place."""
        claim, closing = claim_of(bench, 1), claim_of(bench, 2)
        bench.sink.claim(claim)
        writer.apply(batch_of(claim, 5, upsert(5, 1, "a")))
        bench.drop()
        for table in ("gone", "another"):
            if table == "another":
                bench.create()
            with pytest.raises(SinkRefusedError, match=r"[Rr]estore it|deleted and re-created"):
                writer.apply(batch_of(claim, 6, upsert(6, 1, "b")))
            with pytest.raises(SinkRefusedError, match=r"resume shop --from earliest"):
                bench.sink.prepare(closing, 2)
        bench.sink.claim(closing)
        bench.sink.seal(closing)
        bench.sink.forget(FEED)
        with pytest.raises(SinkFencedError, match="was removed"):
            bench.sink.claim(claim_of(bench, 3))
        assert bench.rows() == {}

    def test_a_users_own_job_in_the_middle_of_a_commit_does_not_stop_the_feed(
        self, bench: LakeBench, writer: SinkWriter
    ) -> None:
        claim = claim_of(bench, 1)
        bench.sink.claim(claim)
        for offset in range(5, 8):
            writer.apply(batch_of(claim, offset, upsert(offset, offset, "a")))
        with bench.freeze_at(CrashPoint.ROWS_SENT, batch_of(claim, 8, upsert(8, 8, "a"))) as frozen:
            before = bench.version()
            bench.compact()
            assert bench.version() != before
            frozen.send_signal(signal.SIGCONT)
            said, _ = frozen.communicate(timeout=SECONDS_MAX)
        assert said == "applied"
        assert (bench.rows(), bench.size()) == (dict.fromkeys(range(5, 9), "a"), 4)

    def test_a_table_that_was_set_back_is_not_written_until_the_feed_begins_again(
        self, bench: LakeBench, writer: SinkWriter
    ) -> None:
        claim = claim_of(bench, 1)
        bench.sink.claim(claim)
        writer.apply(batch_of(claim, 5, upsert(5, 5, "a")))
        first = bench.version()
        writer.apply(batch_of(claim, 6, upsert(6, 6, "a")))
        second = bench.version()
        bench.set_back(first)
        with pytest.raises(SinkRefusedError, match="set back to an earlier version"):
            writer.apply(batch_of(claim, 7, upsert(7, 7, "a")))
        with pytest.raises(SinkRefusedError, match="set back to an earlier version"):
            bench.sink.claim(claim_of(bench, 2))
        assert bench.rows() == {5: "a"}
        bench.set_back(second)
        writer.apply(batch_of(claim, 7, upsert(7, 7, "a")))
        assert bench.rows() == dict.fromkeys(range(5, 8), "a")
        bench.set_back(first)
        bench.sink.seal(claim)  # the feed can be paused
        again = msgspec.structs.replace(claim_of(bench, 3), incarnation=claim.incarnation + 1)
        assert bench.sink.claim(again)[0] == again.start[0]
        for offset in (5, 6):
            bench.sink.writer().apply(batch_of(again, offset, upsert(offset, offset, "b")))
        assert [row["value"] for row in bench.records()].count("b") == 2

    def test_a_table_that_is_reached_by_two_places_is_written_through_one(
        self, bench: LakeBench, writer: SinkWriter
    ) -> None:
        claim = claim_of(bench, 1)
        bench.sink.claim(claim)
        writer.apply(batch_of(claim, 5, upsert(5, 1, "a")))
        sink, name = bench.elsewhere()
        theirs = claim_of(bench, 9, identity=FeedIdentity("cluster-b", "0-9", "other"), table=name)
        for act in (
            lambda: sink.check([name], theirs.identity),
            lambda: sink.prepare(theirs, 2),
            lambda: sink.claim(theirs),
        ):
            with pytest.raises(SinkConflictError, match=r"bound to another ledger, .*two writers would undo") as found:
                act()
            assert bench.lake.ledger(bench.table).place in str(found.value)
        sink.seal(theirs)  # so the other feed can be deleted
        sink.forget(theirs.identity)
        writer.apply(batch_of(claim, 6, upsert(6, 1, "c")))
        assert bench.rows() == {1: "c"}

        bench.unbind()
        with pytest.raises(SinkFencedError, match=r"not bound to its ledger.*Claim it again"):
            writer.apply(batch_of(claim, 7, upsert(7, 1, "d")))
        bench.sink.claim(claim)
        writer.apply(batch_of(claim, 7, upsert(7, 1, "d")))
        assert bench.rows() == {1: "d"}

        bench.sink.seal(claim)
        bench.sink.forget(FEED)
        sink, _ = bench.elsewhere()
        third = msgspec.structs.replace(theirs, identity=FeedIdentity("cluster-b", "0-10", "third"))
        sink.check([name], third.identity)
        sink.claim(third)
        sink.writer().apply(batch_of(third, 5, upsert(5, 2, "b")))
        with pytest.raises(SinkFencedError):
            writer.apply(batch_of(claim, 8, upsert(8, 1, "zombie")))

    def test_a_ledger_that_was_deleted_is_not_replaced_in_silence(self, bench: LakeBench, writer: SinkWriter) -> None:
        """A process that is frozen has checked its claim in the one that is gone."""
        old = claim_of(bench, 1)
        bench.sink.claim(old)
        writer.apply(batch_of(old, 5, upsert(5, 1, "a")))
        with bench.freeze_at(CrashPoint.ROWS_SENT, batch_of(old, 6, upsert(6, 2, "frozen"))) as frozen:
            bench.remove_ledger()
            with pytest.raises(SinkConflictError, match=r"ledger was deleted.*UNSET TBLPROPERTIES"):
                bench.another().claim(claim_of(bench, 2))
            bench.unbind()
            assert bench.another().claim(claim_of(bench, 2)) == {0: 6, 1: 0}
            frozen.send_signal(signal.SIGCONT)
            said, _ = frozen.communicate(timeout=SECONDS_MAX)
        assert said == "sink_fenced"
        assert bench.rows() == {1: "a"}

    def test_an_update_without_unchanged_columns_keeps_their_values(self, upserting: LakeBench) -> None:
        claim, writer = claim_of(upserting, 1), upserting.sink.writer()
        upserting.sink.claim(claim)
        writer.apply(batch_of(claim, 5, upsert(5, 1, "kept"), upsert(6, 2, None)))
        writer.apply(batch_of(claim, 7, partial(7, 1), upsert(8, 2, "b"), upsert(9, 3, "c"), partial(10, 3)))
        assert upserting.rows() == {1: "kept", 2: "b", 3: "c"}
        with pytest.raises(ConstraintViolatedError, match=r"does not have the row.*partition 0, offset 12"):
            writer.apply(batch_of(claim, 11, upsert(11, 4, "d"), partial(12, 9)))
        assert (upserting.rows(), upserting.sink.positions(claim)) == ({1: "kept", 2: "b", 3: "c"}, {0: 11, 1: 0})

    def test_parts_of_a_batch_that_tasks_staged_apart_are_folded(self, upserting: LakeBench) -> None:
        claim = claim_of(upserting, 1)
        upserting.sink.claim(claim)
        stager = upserting.sink.stager()
        parts = [
            batch_of(claim, 5, upsert(5, 1, "a"), upsert(6, 2, "x")),
            batch_of(claim, 7, partial(7, 1), delete(8, 2)),
        ]
        payloads = [stager.stage(part).payload for part in parts]
        upserting.sink.committer().commit(Commit(claim=claim, ranges={0: OffsetRange(5, 9)}, payloads=payloads))
        assert (upserting.rows(), upserting.sink.positions(claim)) == ({1: "a"}, {0: 9, 1: 0})

    def test_a_row_to_append_cannot_leave_out_a_column(self, bench: LakeBench, writer: SinkWriter) -> None:
        if not bench.appends:
            pytest.skip("of mode append")
        claim = claim_of(bench, 1)
        bench.sink.claim(claim)
        with pytest.raises(ValueRefusedError, match=r"column value: .*REPLICA IDENTITY FULL"):
            writer.apply(batch_of(claim, 5, partial(5, 1)))
        assert bench.rows() == {}

    def test_a_batch_that_changes_no_row_moves_the_positions(self, upserting: LakeBench) -> None:
        """delta-rs does not commit such a merge, and reports no error."""
        claim = claim_of(upserting, 1)
        upserting.sink.claim(claim)
        upserting.sink.writer().apply(batch_of(claim, 5, delete(5, 1)))
        assert (upserting.rows(), upserting.sink.positions(claim)) == ({}, {0: 6, 1: 0})
