"""The contract of lake tables that rows are copied to: the fence, and how far a request is.

Subclass it together with LakeContract, and give ``bench``.
"""

import signal
from collections.abc import Sequence

import msgspec
import pytest

from headgate.config.crash_points import CrashPoint
from headgate.formats.change import CONNECTOR
from headgate.sinks.contract import Claim, SinkFencedError, SinkMovedError
from headgate.sinks.lake.history import reached
from headgate.sinks.row_copying import CopiedRows, CopyMark, RowsRefusedError
from integration.sinks.contract import SECONDS_MAX, batch_of, claim_of, delete, upsert
from integration.sinks.lake_contract import LakeBench

KINDS = {CONNECTOR: "postgresql", "id": "int8", "value": "text"}


def claimed(bench: LakeBench, n: int) -> Claim:
    """A claim of the only partition of a topic."""
    claim = claim_of(bench, n, start={0: 5})
    bench.sink.claim(claim)
    return claim


def mark(upto: int, rows: int) -> CopyMark:
    return CopyMark(request="r", upto=(str(upto),), rows=rows)


def copied(
    claim: Claim, values: dict[int, str | None], after: CopyMark | None, *, at: int = 5, deletes: Sequence[int] = ()
) -> CopiedRows:
    """Rows of a range, as texts of the source."""
    return CopiedRows(
        claim=claim,
        positions={0: at},
        key=("id",),
        upserts=[{"id": str(number), "value": value} for number, value in values.items()],
        deletes=[{"id": str(number)} for number in deletes],
        semantics=KINDS,
        mark=after,
    )


class LakeCopyContract:
    """``point``, ``upserting``: fixtures of LakeContract."""

    def test_rows_are_copied_between_changes_and_the_request_continues_where_it_was(self, bench: LakeBench) -> None:
        claim, writer = claimed(bench, 1), bench.sink.writer()
        assert bench.sink.copied(claim, "r") == CopyMark(request="r")
        writer.copy(copied(claim, {1: "a", 2: None}, mark(2, 2)))
        assert bench.sink.copied(claim, "r") == mark(2, 2)
        writer.apply(batch_of(claim, 5, upsert(5, 1, "newer"), delete(6, 2), upsert(7, 3, "older")))
        other = claimed(bench, 2)
        bench.sink.writer().copy(copied(other, {3: "c"}, mark(3, 3), at=8))
        assert bench.sink.copied(other, "r") == mark(3, 3)
        assert bench.sink.copied(other, "another") == CopyMark(request="another")
        assert (bench.rows(), bench.sink.positions(other)) == ({1: "newer", 3: "c"}, {0: 8})

    def test_versions_have_the_positions_of_their_commits_and_whether_a_copy_goes_on(self, bench: LakeBench) -> None:
        claim, writer = claimed(bench, 1), bench.sink.writer()
        writer.copy(copied(claim, {1: "a"}, mark(1, 1)))
        writer.apply(batch_of(claim, 5, upsert(5, 1, "b")))
        writer.copy(copied(claim, {2: "c"}, msgspec.structs.replace(mark(2, 2), is_done=True), at=6))
        table = bench.sink.lake().table(bench.table)
        assert table is not None
        found = reached(table.versions(), claim.topic)
        assert [(each.positions, each.is_copying) for each in found] == [
            ({0: 5}, True),
            ({0: 6}, True),
            ({0: 6}, False),
        ]

    def test_a_copied_row_is_a_read_at_the_position_that_changes_follow(self, bench: LakeBench) -> None:
        if not bench.appends:
            pytest.skip("of mode append")
        claim, writer = claimed(bench, 1), bench.sink.writer()
        writer.copy(copied(claim, {1: "a"}, mark(1, 1)))
        writer.apply(batch_of(claim, 5, upsert(5, 1, "b")))
        places = [(row["_operation"], row["_topic_partition"], row["_offset"], row["value"]) for row in bench.records()]
        assert sorted(places, key=str) == [("read", 0, 5, "a"), ("upsert", 0, 5, "b")]
        with pytest.raises(RowsRefusedError, match="none is ever deleted"):
            writer.copy(copied(claim, {}, None, at=6, deletes=[1]))

    def test_rows_that_the_source_lacks_are_deleted(self, upserting: LakeBench) -> None:
        claim, writer = claimed(upserting, 1), upserting.sink.writer()
        writer.apply(batch_of(claim, 5, upsert(5, 1, "a"), upsert(6, 2, "b")))
        writer.copy(copied(claim, {1: "c"}, None, at=7, deletes=[2, 9]))
        assert (upserting.rows(), upserting.sink.positions(claim)) == ({1: "c"}, {0: 7})

    def test_a_range_without_rows_is_done_as_well(self, bench: LakeBench) -> None:
        claim = claimed(bench, 1)
        bench.sink.writer().copy(copied(claim, {}, mark(7, 0)))
        assert (bench.sink.copied(claim, "r"), bench.rows()) == (mark(7, 0), {})

    def test_rows_of_another_position_or_a_former_claim_are_not_written(self, bench: LakeBench) -> None:
        claim, writer = claimed(bench, 1), bench.sink.writer()
        writer.apply(batch_of(claim, 5, upsert(5, 1, "a")))
        with pytest.raises(SinkMovedError):
            writer.copy(copied(claim, {1: "older"}, mark(1, 1)))
        claimed(bench, 2)
        with pytest.raises(SinkFencedError):
            writer.copy(copied(claim, {1: "older"}, mark(1, 1), at=6))
        assert (bench.rows(), bench.sink.copied(claim, "r")) == ({1: "a"}, CopyMark(request="r"))

    def test_a_frozen_process_does_not_copy_once_another_one_has_claimed(self, bench: LakeBench) -> None:
        claim = claimed(bench, 1)
        with bench.freeze_at(CrashPoint.ROWS_SENT, copied(claim, {1: "frozen"}, mark(1, 1))) as frozen:
            other = claimed(bench, 2)
            assert bench.sink.copied(other, "r") == CopyMark(request="r"), "its range is begun, and not done"
            bench.sink.writer().copy(copied(other, {1: "a", 2: "b"}, mark(2, 2)))
            frozen.send_signal(signal.SIGCONT)
            said, _ = frozen.communicate(timeout=SECONDS_MAX)
        assert said == SinkFencedError.code
        assert (bench.rows(), bench.size(), bench.sink.copied(other, "r")) == ({1: "a", 2: "b"}, 2, mark(2, 2))

    def test_a_range_is_written_once_wherever_the_process_is_killed(self, bench: LakeBench, point: CrashPoint) -> None:
        claim = claimed(bench, 1)
        with bench.freeze_at(point, copied(claim, {1: "a"}, mark(1, 1))) as killed:
            killed.kill()
        is_done = point is CrashPoint.COMMITTED
        assert bench.sink.copied(claim, "r") == (mark(1, 1) if is_done else CopyMark(request="r"))
        other = claimed(bench, 2)
        if not is_done:
            bench.sink.writer().copy(copied(other, {1: "a"}, mark(1, 1)))
        assert (bench.rows(), bench.size(), bench.sink.copied(other, "r")) == ({1: "a"}, 1, mark(1, 1))

    def test_a_table_that_was_created_again_is_copied_from_its_beginning(self, bench: LakeBench) -> None:
        claim = claimed(bench, 1)
        bench.sink.writer().copy(copied(claim, {1: "a"}, mark(1, 1)))
        bench.drop()
        assert bench.sink.copied(claim, "r") == CopyMark(request="r")
        bench.create()
        rewound = msgspec.structs.replace(claim_of(bench, 2, start={0: 5}), incarnation=1)
        bench.sink.claim(rewound)
        assert bench.sink.copied(rewound, "r") == CopyMark(request="r")
        bench.sink.writer().copy(copied(rewound, {1: "b"}, mark(1, 1)))
        assert (bench.rows(), bench.sink.copied(rewound, "r")) == ({1: "b"}, mark(1, 1))

    @pytest.mark.parametrize(
        ("value", "words"), [("many", "not a value of the column's type"), (str(2**63), "64 bits")]
    )
    def test_a_value_that_the_column_cannot_hold_is_refused_without_quoting_it(
        self, bench: LakeBench, value: str, words: str
    ) -> None:
        claim = claimed(bench, 1)
        rows = msgspec.structs.replace(copied(claim, {}, mark(1, 1)), upserts=[{"id": value, "value": "a"}])
        with pytest.raises(RowsRefusedError, match=f"column id: .*{words}") as refused:
            bench.sink.writer().copy(rows)
        assert value not in str(refused.value)
        assert (bench.rows(), bench.sink.copied(claim, "r")) == ({}, CopyMark(request="r"))
