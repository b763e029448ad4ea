"""The contract of every sink (docs/adr/0002), as tests: subclass, and give the fixture ``bench``.

The table has a key ``id`` (integer) and a text column ``value``; the topic has two partitions.
"""

import json
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import msgspec
import psutil
import pytest

from headgate.formats.change import LACKING, LACKING_NULL, LACKING_UNKNOWN, Change, ChangeError, Operation
from headgate.provisioning.time_scale import scaled_seconds
from headgate.records.control import Epoch, Positions
from headgate.records.source_tables import SourceTable
from headgate.sinks.contract import (
    ChangeBatch,
    ChangeRefusedError,
    Claim,
    FeedIdentity,
    OffsetRange,
    Quarantine,
    QuarantineFullError,
    Sink,
    SinkConflictError,
    SinkError,
    SinkFencedError,
    SinkMovedError,
    SinkUnavailableError,
    SinkWriter,
    TopicReplacedError,
    ValueRefusedError,
)

HOLDER = Path(__file__).with_name("frozen_holder.py")
FEED = FeedIdentity("cluster-a", "0-7", "shop")
ORDERS: SourceTable = ("d", "s", "orders")
ITEMS: SourceTable = ("d", "s", "items")
SECONDS_MAX = scaled_seconds(60.0)
"""For a process that imports Headgate to get somewhere, or a lock to be free, on a busy machine."""


class Bench(Protocol):
    """A sink with one empty table, and what a test needs to look behind it."""

    sink: Sink
    table: str

    def rows(self) -> dict[int, str | None]: ...

    def execute(self, statement: str) -> list[tuple]: ...

    def drop(self) -> None:
        """Drop the table."""
        ...

    def restore(self, claim: Claim, positions: Positions, epoch: Epoch | None = None) -> None:
        """Make the sink's own progress what a backup would have had."""
        ...

    def freeze_while_applying(self, batch: ChangeBatch) -> "subprocess.Popen[str]":
        """A process stopped (SIGSTOP) in the middle of an apply; once thawed it prints the error code or "applied"."""
        ...


def upsert(offset: int, row_id: int, value: str | None, partition: int = 0) -> Change:
    return Change(
        partition,
        offset,
        Operation.UPSERT,
        {"id": row_id},
        {"id": row_id, "value": value},
        1_000 + offset,
        2_000 + offset,
    )


def delete(offset: int, row_id: int, partition: int = 0) -> Change:
    return Change(partition, offset, Operation.DELETE, {"id": row_id}, None, 1_000 + offset, 2_000 + offset)


def respelled(change: Change) -> Change:
    """The same with the key's number as a text."""
    key: dict[str, object] = {"id": str(change.key["id"])}
    return msgspec.structs.replace(change, key=key, row=None if change.row is None else change.row | key)


def left_out(offset: int, row_id: int, lacking: str) -> Change:
    """A whole row whose writer has left out the value. ``lacking``: what that means (LACKING)."""
    key: dict[str, object] = {"id": row_id}
    return Change(0, offset, Operation.UPSERT, key, dict(key), None, 2_000 + offset, {LACKING: lacking})


def claim_of(bench: Bench, n: int, **changed: object) -> Claim:
    fields: dict[str, object] = {
        "identity": FEED,
        "table": bench.table,
        "topic": "shop.public.orders",
        "epoch": Epoch(3, n),
        "incarnation": 0,
        "start": {0: 5, 1: 0},
    }
    return Claim(**(fields | changed))  # type: ignore[arg-type]


def batch_of(claim: Claim, expected: int, *changes: Change, to: int | None = None) -> ChangeBatch:
    """Changes of partition 0, from ``expected`` to behind the last."""
    end = to if to is not None else max((change.offset for change in changes), default=expected) + 1
    return ChangeBatch(claim, {0: OffsetRange(expected, end)}, changes)


def met(batch: ChangeBatch, table: SourceTable) -> ChangeBatch:
    """The same, having met events of that table of the source."""
    return msgspec.structs.replace(batch, source_table=table)


def unfit(offset: int) -> Change:
    """A change that no sink can take: its key is not the table's."""
    return Change(0, offset, Operation.UPSERT, {"other": 1}, {"other": 1}, None, 2_000 + offset)


def with_quarantine(
    batch: ChangeBatch, keep: Callable[[Sequence[ChangeRefusedError]], None], most: int = 10
) -> ChangeBatch:
    return msgspec.structs.replace(batch, quarantine=Quarantine(keep, most, patient=True))


def frozen_while_applying(spec: dict[str, object], batch: ChangeBatch) -> "subprocess.Popen[str]":
    """See Bench.freeze_while_applying: the same for every sink that a spec opens and that stages rows."""
    packed = msgspec.msgpack.encode(batch).hex()
    command = [sys.executable, str(HOLDER), json.dumps(spec), packed]
    return wait_until_frozen(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))


def wait_until_frozen(holder: "subprocess.Popen[str]") -> "subprocess.Popen[str]":
    """The process, once it has stopped itself."""
    deadline = time.monotonic() + SECONDS_MAX
    while psutil.Process(holder.pid).status() != psutil.STATUS_STOPPED:
        assert holder.poll() is None, "the holder ended instead of freezing"
        assert time.monotonic() < deadline, "the holder did not freeze"
        time.sleep(0.02)
    return holder


def run_all(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class SinkContract:
    """Every sentence a test. Offsets of partition 0 start at 5."""

    FROZEN_ENDS_AS = SinkUnavailableError.code
    """What a holder meets when it is thawed after the next claim: its session is gone."""

    @staticmethod
    def completes_rows(bench: Bench) -> bool:  # noqa: ARG004
        """Whether a column that a row lacks keeps what the sink has, or gets the sink's default.

        If not, a row is written as it came, so it makes no difference why it lacks the column.
        """
        return True

    @pytest.fixture
    def bench(self) -> Bench:
        raise NotImplementedError

    @pytest.fixture
    def writer(self, bench: Bench) -> Iterator[SinkWriter]:
        writer = bench.sink.writer()
        yield writer
        writer.close()

    # --- claim ---

    def test_a_first_claim_creates_the_positions_from_start(self, bench: Bench) -> None:
        claim = claim_of(bench, 1)
        assert bench.sink.positions(claim) == {0: 5, 1: 0}
        assert bench.sink.claim(claim) == {0: 5, 1: 0}

    def test_a_later_claim_goes_on_from_the_sink_whatever_start_says(self, bench: Bench, writer: SinkWriter) -> None:
        first = claim_of(bench, 1)
        bench.sink.claim(first)
        writer.apply(batch_of(first, 5, upsert(5, 1, "a")))
        assert bench.sink.claim(claim_of(bench, 2, start={0: 0, 1: 99})) == {0: 6, 1: 0}

    def test_the_same_claim_again_is_the_same_answer(self, bench: Bench, writer: SinkWriter) -> None:
        claim = claim_of(bench, 1)
        bench.sink.claim(claim)
        writer.apply(batch_of(claim, 5, upsert(5, 1, "a")))
        assert bench.sink.claim(claim) == {0: 6, 1: 0}
        writer.apply(batch_of(claim, 6, upsert(6, 1, "b")))

    def test_a_claim_below_the_sinks_epoch_is_fenced(self, bench: Bench) -> None:
        bench.sink.claim(claim_of(bench, 2))
        with pytest.raises(SinkFencedError, match=r"3\.2"):
            bench.sink.claim(claim_of(bench, 1))

    def test_epochs_are_compared_as_pairs(self, bench: Bench) -> None:
        bench.sink.claim(claim_of(bench, 9))
        bench.sink.claim(claim_of(bench, 1, epoch=Epoch(4, 1)))
        with pytest.raises(SinkFencedError):
            bench.sink.claim(claim_of(bench, 10))

    def test_an_epoch_the_log_does_not_know_stops_the_writer(self, bench: Bench, writer: SinkWriter) -> None:
        claim = claim_of(bench, 1)
        bench.sink.claim(claim)
        bench.restore(claim, {0: 5, 1: 0}, Epoch(99, 1))
        with pytest.raises(SinkFencedError, match=r"99\.1"):
            writer.apply(batch_of(claim, 5, upsert(5, 1, "a")))
        with pytest.raises(SinkFencedError, match=r"99\.1"):
            bench.sink.claim(claim_of(bench, 2))
        assert bench.rows() == {}

    def test_a_rewind_is_a_claim_with_a_new_incarnation(self, bench: Bench, writer: SinkWriter) -> None:
        claim = claim_of(bench, 1)
        bench.sink.claim(claim)
        writer.apply(batch_of(claim, 5, upsert(5, 1, "a")))
        again = claim_of(bench, 2, incarnation=1, start={0: 2, 1: 0})
        assert bench.sink.positions(again) == {0: 2, 1: 0}
        assert bench.sink.claim(again) == {0: 2, 1: 0}
        with pytest.raises(SinkConflictError, match="incarnation"):
            bench.sink.claim(claim_of(bench, 3, incarnation=0))

    def test_a_topic_made_anew_is_refused(self, bench: Bench) -> None:
        claim = claim_of(bench, 1, topic_id="first")
        bench.sink.claim(claim)
        again = msgspec.structs.replace(claim, topic_id="second")
        for other in (again, claim_of(bench, 2, topic_id="second")):
            with pytest.raises(TopicReplacedError, match=r"id is second, the sink's offset \d+ is of first"):
                bench.sink.claim(other)
            with pytest.raises(TopicReplacedError):
                bench.sink.positions(other)
        assert bench.sink.claim(claim_of(bench, 2)) == bench.sink.positions(claim), "who does not know it may seal"

    def test_a_row_without_a_topics_id_takes_on_the_one_that_is_seen(self, bench: Bench) -> None:
        claim = claim_of(bench, 1)
        bench.sink.claim(claim)
        bench.sink.claim(msgspec.structs.replace(claim, topic_id="first"))
        bench.sink.claim(claim_of(bench, 2))
        with pytest.raises(TopicReplacedError):
            bench.sink.claim(claim_of(bench, 3, topic_id="second"))
        assert bench.sink.claim(claim_of(bench, 3, topic_id="first")) == bench.sink.positions(claim)

    def test_a_rewind_is_of_the_topic_that_it_names_or_of_any(self, bench: Bench) -> None:
        bench.sink.claim(claim_of(bench, 1, topic_id="first"))
        bench.sink.claim(claim_of(bench, 2, incarnation=1, topic_id="second"))
        with pytest.raises(TopicReplacedError, match="is of second"):
            bench.sink.claim(claim_of(bench, 3, incarnation=1, topic_id="first"))
        # Closed before anybody has looked at the topic, as after a pause at once: the old id is not kept.
        bench.sink.claim(claim_of(bench, 3, incarnation=2))
        bench.sink.claim(claim_of(bench, 4, incarnation=2, topic_id="third"))

    # --- the source's table ---

    def test_the_source_table_that_a_batch_met_is_told_to_whoever_claims_next(
        self, bench: Bench, writer: SinkWriter
    ) -> None:
        claim = claim_of(bench, 1)
        bench.sink.claim(claim)
        assert bench.sink.source_table(claim) is None
        writer.apply(batch_of(claim, 5, upsert(5, 1, "a")))
        assert bench.sink.source_table(claim) is None
        table = (None, 'odd "\x00', "é😀" * 400)
        writer.apply(met(batch_of(claim, 6, upsert(6, 1, "a")), table))
        bench.sink.claim(claim_of(bench, 2))
        assert bench.sink.source_table(claim_of(bench, 2)) == table
        assert bench.sink.source_table(claim_of(bench, 2, topic="another")) is None

    def test_what_was_not_applied_has_told_no_source_table(self, bench: Bench, writer: SinkWriter) -> None:
        claim = claim_of(bench, 1)
        bench.sink.claim(claim)
        for refused in (batch_of(claim, 5, unfit(5)), batch_of(claim, 4, upsert(4, 1, "a"))):
            with pytest.raises((SinkError, ChangeError)):
                writer.apply(met(refused, ORDERS))
            assert bench.sink.source_table(claim) is None
        writer.apply(met(batch_of(claim, 5, upsert(5, 1, "a"), unfit(6)), ORDERS))
        assert (bench.rows(), bench.sink.source_table(claim)) == ({1: "a"}, ORDERS)

    def test_of_two_partitions_with_different_source_tables_the_second_is_read_again(
        self, bench: Bench, writer: SinkWriter
    ) -> None:
        """Each in a part of the table, or a task, of its own: neither knows what the other has met."""
        first, second = (claim_of(bench, n, start={n - 1: 5}, span=f"t#{n - 1}") for n in (1, 2))
        for claim in (first, second):
            bench.sink.claim(claim)
        writer.apply(met(batch_of(first, 5, upsert(5, 1, "a")), ORDERS))
        strange = ChangeBatch(second, {1: OffsetRange(5, 6)}, [upsert(5, 2, "b", partition=1)])
        with pytest.raises(SinkMovedError, match=r"carries changes of d\.s\.orders.*of d\.s\.items"):
            writer.apply(met(strange, ITEMS))
        in_parts = msgspec.structs.replace(
            strange,
            ranges={1: OffsetRange(5, 7)},
            changes=[*strange.changes, msgspec.structs.replace(unfit(6), partition=1)],
        )
        with pytest.raises(SinkMovedError):
            writer.apply(met(in_parts, ITEMS))
        assert (bench.rows(), bench.sink.positions(second)) == ({1: "a"}, {1: 5})
        assert bench.sink.source_table(second) == ORDERS
        writer.apply(met(strange, ORDERS))
        assert bench.rows() == {1: "a", 2: "b"}

    def test_of_two_partitions_that_meet_different_source_tables_at_once_one_is_applied(self, bench: Bench) -> None:
        claims = [claim_of(bench, n + 1, start={n: 5}, span=f"t#{n}") for n in range(2)]
        batches = []
        for n, (claim, table) in enumerate(zip(claims, (ORDERS, ITEMS), strict=True)):
            bench.sink.claim(claim)
            batches.append(met(ChangeBatch(claim, {n: OffsetRange(5, 6)}, [upsert(5, n, "x", partition=n)]), table))
        outcomes: dict[int, str] = {}

        def apply(n: int) -> None:
            writer = bench.sink.writer()
            try:
                writer.apply(batches[n])
                outcomes[n] = "applied"
            except SinkMovedError:
                outcomes[n] = "moved"
            finally:
                writer.close()

        run_all([threading.Thread(target=apply, args=(n,)) for n in range(2)])
        assert sorted(outcomes.values()) == ["applied", "moved"]
        (winner,) = (n for n, outcome in outcomes.items() if outcome == "applied")
        assert (bench.rows(), bench.sink.source_table(claims[0])) == ({winner: "x"}, (ORDERS, ITEMS)[winner])

    def test_a_rewind_knows_no_source_table_and_may_meet_another(self, bench: Bench, writer: SinkWriter) -> None:
        claim, rewind = claim_of(bench, 1), claim_of(bench, 2, incarnation=1)
        bench.sink.claim(claim)
        writer.apply(met(batch_of(claim, 5, upsert(5, 1, "a")), ORDERS))
        bench.sink.claim(rewind)
        assert bench.sink.source_table(rewind) is None
        writer.apply(met(batch_of(rewind, 5, upsert(5, 1, "a")), ITEMS))
        assert bench.sink.source_table(rewind) == ITEMS
        bench.sink.seal(rewind)
        bench.sink.forget(FEED)
        assert bench.sink.source_table(rewind) is None

    def test_a_sink_of_before_source_tables_were_kept_is_taken_on(self, bench: Bench, writer: SinkWriter) -> None:
        claim = claim_of(bench, 1)
        bench.sink.claim(claim)
        bench.execute("DROP TABLE headgate.source_tables")
        bench.sink.claim(claim)
        writer.apply(met(batch_of(claim, 5, upsert(5, 1, "a")), ORDERS))
        assert bench.sink.source_table(claim) == ORDERS
        bench.execute("DROP TABLE headgate.source_tables")
        bench.sink.seal(claim)
        bench.sink.forget(FEED)
        assert bench.sink.positions(claim) == {0: 5, 1: 0}

    # --- apply ---

    def test_rows_and_positions_become_visible_together(self, bench: Bench, writer: SinkWriter) -> None:
        claim = claim_of(bench, 1)
        bench.sink.claim(claim)
        applied = writer.apply(
            ChangeBatch(
                claim,
                {0: OffsetRange(5, 9), 1: OffsetRange(0, 1)},
                [upsert(5, 1, "a"), upsert(6, 2, "b"), delete(7, 1), upsert(0, 3, "c", partition=1)],
            )
        )
        assert applied.positions == {0: 9, 1: 1} == bench.sink.positions(claim)
        assert bench.rows() == {2: "b", 3: "c"}

    def test_an_empty_batch_only_moves_the_positions(self, bench: Bench, writer: SinkWriter) -> None:
        claim = claim_of(bench, 1)
        bench.sink.claim(claim)
        assert writer.apply(batch_of(claim, 5, to=8)).positions == {0: 8}
        assert bench.sink.positions(claim) == {0: 8, 1: 0}

    def test_nothing_is_applied_twice(self, bench: Bench, writer: SinkWriter) -> None:
        claim = claim_of(bench, 1)
        bench.sink.claim(claim)
        first = batch_of(claim, 5, upsert(5, 1, "a"))
        writer.apply(first)
        writer.apply(batch_of(claim, 6, upsert(6, 1, "b")))
        with pytest.raises(SinkMovedError):
            writer.apply(first)
        assert bench.rows() == {1: "b"}

    def test_a_late_attempt_of_the_same_epoch_changes_nothing(self, bench: Bench, writer: SinkWriter) -> None:
        claim = claim_of(bench, 1)
        bench.sink.claim(claim)
        late = bench.sink.writer()
        try:
            writer.apply(batch_of(claim, 5, upsert(5, 1, "a"), upsert(6, 1, "b")))
            with pytest.raises(SinkMovedError, match="7"):
                late.apply(batch_of(claim, 5, upsert(5, 1, "a")))
        finally:
            late.close()
        assert bench.rows() == {1: "b"}
        assert bench.sink.positions(claim) == {0: 7, 1: 0}

    def test_one_partition_out_of_place_stops_all(self, bench: Bench, writer: SinkWriter) -> None:
        claim = claim_of(bench, 1)
        bench.sink.claim(claim)
        changes = [upsert(5, 1, "a"), upsert(7, 2, "b", partition=1)]
        with pytest.raises(SinkMovedError):
            writer.apply(ChangeBatch(claim, {0: OffsetRange(5, 6), 1: OffsetRange(7, 8)}, changes))
        assert bench.rows() == {}
        assert bench.sink.positions(claim) == {0: 5, 1: 0}

    def test_a_zombie_of_a_lower_epoch_changes_nothing(self, bench: Bench, writer: SinkWriter) -> None:
        old = claim_of(bench, 1)
        bench.sink.claim(old)
        writer.apply(batch_of(old, 5, upsert(5, 1, "a")))
        bench.sink.claim(claim_of(bench, 2))
        with pytest.raises(SinkFencedError, match=r"3\.2"):
            writer.apply(batch_of(old, 6, upsert(6, 1, "zombie")))
        with pytest.raises(SinkFencedError):
            writer.apply(batch_of(old, 6, to=7))
        assert bench.rows() == {1: "a"}

    def test_a_reads_b_claims_and_writes_a_commits(self, bench: Bench, writer: SinkWriter) -> None:
        a = claim_of(bench, 1)
        start = bench.sink.claim(a)
        b = claim_of(bench, 2)
        bench.sink.claim(b)
        other = bench.sink.writer()
        try:
            other.apply(batch_of(b, start[0], upsert(5, 1, "from b")))
            with pytest.raises(SinkError) as refused:
                writer.apply(batch_of(a, start[0], upsert(5, 1, "from a")))
        finally:
            other.close()
        assert isinstance(refused.value, SinkFencedError)
        assert bench.rows() == {1: "from b"}

    def test_a_restored_sink_is_neither_skipped_over_nor_doubled(self, bench: Bench, writer: SinkWriter) -> None:
        claim = claim_of(bench, 1)
        bench.sink.claim(claim)
        writer.apply(batch_of(claim, 5, upsert(5, 1, "a")))
        bench.restore(claim, {0: 5, 1: 0})
        with pytest.raises(SinkMovedError, match="5"):
            writer.apply(batch_of(claim, 6, upsert(6, 2, "b")))
        assert 2 not in bench.rows()
        writer.apply(batch_of(claim, bench.sink.positions(claim)[0], upsert(5, 1, "a"), upsert(6, 2, "b")))
        assert bench.rows() == {1: "a", 2: "b"}

    def test_a_sink_restored_to_before_the_claim_needs_a_new_claim(self, bench: Bench, writer: SinkWriter) -> None:
        bench.sink.claim(claim_of(bench, 1))
        claim = claim_of(bench, 2)
        bench.sink.claim(claim)
        bench.restore(claim, {0: 5, 1: 0}, Epoch(3, 1))
        with pytest.raises(SinkFencedError, match="restored"):
            writer.apply(batch_of(claim, 5, upsert(5, 1, "a")))
        assert bench.rows() == {}

    def test_changes_outside_the_offsets_of_the_batch_are_refused(self, bench: Bench, writer: SinkWriter) -> None:
        claim = claim_of(bench, 1)
        bench.sink.claim(claim)
        with pytest.raises(ValueError, match="outside"):
            writer.apply(batch_of(claim, 5, upsert(4, 1, "below the position"), to=6))
        assert bench.rows() == {}

    # --- columns that rows lack ---

    def test_a_column_that_its_writer_leaves_out_where_it_is_null_becomes_null(
        self, bench: Bench, writer: SinkWriter
    ) -> None:
        """In rows that are new, in rows that had a value at the sink, and in rows that had one in the same batch."""
        claim = claim_of(bench, 1)
        bench.sink.claim(claim)
        writer.apply(batch_of(claim, 5, upsert(5, 1, "old")))
        writer.apply(
            batch_of(
                claim,
                6,
                *(left_out(6, 1, LACKING_NULL), left_out(7, 2, LACKING_NULL)),
                *(upsert(8, 3, "old"), left_out(9, 3, LACKING_NULL)),
                *(upsert(10, 4, "old"), delete(11, 4), left_out(12, 4, LACKING_NULL)),
            )
        )
        assert bench.rows() == dict.fromkeys((1, 2, 3, 4))

    def test_a_column_that_may_be_null_or_unknown_to_the_source_is_refused_where_that_is_a_difference(
        self, bench: Bench, writer: SinkWriter
    ) -> None:
        claim = claim_of(bench, 1)
        bench.sink.claim(claim)
        writer.apply(batch_of(claim, 5, upsert(5, 1, "old")))
        unclear = batch_of(claim, 6, left_out(6, 1, LACKING_UNKNOWN))
        if not self.completes_rows(bench):
            writer.apply(unclear)
            assert bench.rows() == {1: None}
            return
        with pytest.raises(ValueRefusedError, match=r"column value: .*source\.output_nulls.*offset 6"):
            writer.apply(unclear)
        assert bench.rows() == {1: "old"}
        writer.apply(
            batch_of(claim, 6, msgspec.structs.replace(upsert(6, 1, "new"), semantics={LACKING: LACKING_UNKNOWN}))
        )
        assert bench.rows() == {1: "new"}

    # --- keys that are written in two ways ---

    def test_keys_of_one_row_that_are_written_in_two_ways_are_of_one_row(
        self, bench: Bench, writer: SinkWriter
    ) -> None:
        """As where a connector's settings change: the last word counts, whichever way its key is written."""
        if not self.completes_rows(bench):
            pytest.skip("rows are written as they came")
        claim = claim_of(bench, 1)
        bench.sink.claim(claim)
        writer.apply(
            batch_of(
                claim,
                5,
                *(upsert(5, 1, "a"), respelled(upsert(6, 1, "b")), upsert(7, 2, "a"), respelled(delete(8, 2))),
                *(upsert(9, 3, "a"), respelled(delete(10, 3)), upsert(11, 3, "c"), respelled(upsert(12, 4, "d"))),
                *(upsert(13, 4, "e"), respelled(upsert(14, 5, "f")), delete(15, 5)),
            )
        )
        assert bench.rows() == {1: "b", 3: "c", 4: "e"}
        writer.apply(batch_of(claim, 16, delete(16, 1), respelled(upsert(17, 1, "g")), delete(18, 3)))
        assert bench.rows() == {1: "g", 4: "e"}

    # --- changes that are refused ---

    def test_without_a_place_for_it_a_bad_change_ends_the_batch_before_it(
        self, bench: Bench, writer: SinkWriter
    ) -> None:
        claim = claim_of(bench, 1)
        bench.sink.claim(claim)
        bad = [upsert(5, 1, "a"), unfit(6), upsert(7, 2, "b")]
        assert writer.apply(batch_of(claim, 5, *bad)).positions == {0: 6}
        with pytest.raises(ChangeRefusedError, match=rf"{claim.topic}, partition 0, offset 6") as refused:
            writer.apply(batch_of(claim, 6, *bad[1:]))
        assert (refused.value.partition, refused.value.offset) == (0, 6)
        assert (bench.rows(), bench.sink.positions(claim)) == ({1: "a"}, {0: 6, 1: 0})

    def test_an_event_of_several_changes_is_applied_as_a_whole_or_not_at_all(
        self, bench: Bench, writer: SinkWriter
    ) -> None:
        claim = claim_of(bench, 1)
        bench.sink.claim(claim)
        half_bad = [upsert(6, 2, "half"), delete(6, 1), unfit(6)]
        events = [upsert(5, 1, "a"), *half_bad, upsert(7, 3, "c")]
        assert writer.apply(batch_of(claim, 5, *events)).positions == {0: 6}
        for _ in range(2):
            with pytest.raises(ChangeRefusedError, match="partition 0, offset 6"):
                writer.apply(batch_of(claim, 6, *events[1:]))
            assert (bench.rows(), bench.sink.positions(claim)) == ({1: "a"}, {0: 6, 1: 0})

        kept: list[int] = []
        rest = with_quarantine(
            batch_of(claim, 6, *events[1:]), lambda refused: kept.extend(each.offset for each in refused)
        )
        applied = writer.apply(rest)
        assert (applied.positions, applied.kept, kept) == ({0: 8}, 1, [6]), "one event, however many changes it has"
        assert bench.rows() == {1: "a", 3: "c"}

    @pytest.mark.parametrize("seed", range(8))
    def test_of_events_and_refusals_by_chance_whole_events_are_applied_and_the_position_is_their_end(
        self, bench: Bench, writer: SinkWriter, seed: int
    ) -> None:
        chance = random.Random(seed)  # noqa: S311 - no secret
        claim = claim_of(bench, 1)
        bench.sink.claim(claim)
        changes: list[Change] = []
        offset = 5
        for _ in range(12):
            bad = chance.random() < 0.15
            size = chance.randint(1, 4)
            for number in range(size):
                row = chance.randint(1, 5)
                change = delete(offset, row) if chance.random() < 0.3 else upsert(offset, row, f"{offset}.{number}")
                changes.append(unfit(offset) if bad and number == size - 1 else change)
            offset += chance.randint(1, 2)
        position = 5
        while position < offset:
            waiting = [change for change in changes if change.offset >= position]
            first_bad = min((c.offset for c in waiting if "other" in c.key), default=offset)
            if first_bad == waiting[0].offset:
                with pytest.raises(ChangeRefusedError, match=f"offset {first_bad}"):
                    writer.apply(batch_of(claim, position, *waiting, to=offset))
                assert bench.sink.positions(claim)[0] == position
                changes = [change for change in changes if change.offset != first_bad]
                if not [change for change in changes if change.offset >= position]:
                    break
                continue
            applied = writer.apply(batch_of(claim, position, *waiting, to=offset))
            position = applied.positions[0]
            assert position == first_bad == bench.sink.positions(claim)[0]
            rows: dict[int, str | None] = {}
            for change in (each for each in changes if each.offset < position):
                if change.row is None:
                    rows.pop(int(str(change.key["id"])), None)
                else:
                    rows[int(str(change.key["id"]))] = str(change.row["value"])
            assert bench.rows() == rows

    def test_a_truncate_is_refused_by_whoever_has_a_part_of_the_table(self, bench: Bench, writer: SinkWriter) -> None:
        whole = claim_of(bench, 1)
        bench.sink.claim(whole)
        writer.apply(batch_of(whole, 5, upsert(5, 1, "a")))
        bench.sink.seal(whole)
        for n, partition in ((2, 0), (3, 1)):
            start = {0: 5, 1: 0}[partition]
            part = claim_of(bench, n, span=f"{bench.table}~{partition}", start={partition: start})
            at = bench.sink.claim(part)[partition]
            truncate = Change(partition, at, Operation.TRUNCATE, {}, None, None, 0)
            with pytest.raises(ChangeRefusedError, match=rf"TRUNCATE in topic {part.topic}.*offset {at}"):
                writer.apply(ChangeBatch(part, {partition: OffsetRange(at, at + 1)}, [truncate]))
            assert (bench.rows(), bench.sink.positions(part)) == ({1: "a"}, {partition: at})
            bench.sink.seal(part)
        alone = claim_of(bench, 4, topic="shop.public.alone", start={0: 0})
        bench.sink.claim(alone)
        writer.apply(ChangeBatch(alone, {0: OffsetRange(0, 1)}, [Change(0, 0, Operation.TRUNCATE, {}, None, None, 0)]))
        assert bench.rows() == {}

    def test_bad_changes_are_safe_before_the_positions_move_past_them(self, bench: Bench, writer: SinkWriter) -> None:
        claim = claim_of(bench, 1)
        bench.sink.claim(claim)
        kept: list[tuple[int, Positions]] = []

        def keep(refused: Sequence[ChangeRefusedError]) -> None:
            kept.extend((each.offset, bench.sink.positions(claim)) for each in refused)

        changes = [upsert(n, n, "v") if n not in (8, 9, 20) else unfit(n) for n in range(5, 37)]
        applied = writer.apply(with_quarantine(batch_of(claim, 5, *changes), keep))
        assert (applied.positions, applied.kept) == ({0: 37}, 3)
        assert kept == [(offset, {0: 5, 1: 0}) for offset in (8, 9, 20)]
        assert sorted(bench.rows()) == [n for n in range(5, 37) if n not in (8, 9, 20)]
        assert bench.sink.positions(claim) == {0: 37, 1: 0}

    def test_what_cannot_be_kept_is_not_passed_over(self, bench: Bench, writer: SinkWriter) -> None:
        claim = claim_of(bench, 1)
        bench.sink.claim(claim)

        def keep(_: Sequence[ChangeRefusedError]) -> None:
            raise SinkUnavailableError("no room")

        with pytest.raises(SinkUnavailableError, match="no room"):
            writer.apply(with_quarantine(batch_of(claim, 5, upsert(5, 1, "a"), unfit(6)), keep))
        assert (bench.rows(), bench.sink.positions(claim)) == ({}, {0: 5, 1: 0})

    def test_more_bad_changes_than_allowed_are_refused_as_a_whole(self, bench: Bench, writer: SinkWriter) -> None:
        claim = claim_of(bench, 1)
        bench.sink.claim(claim)
        kept: list[ChangeRefusedError] = []
        batch = batch_of(claim, 5, *(unfit(n) for n in range(5, 205)))
        with pytest.raises(QuarantineFullError, match="offset 5"):
            writer.apply(with_quarantine(batch, kept.extend, most=3))
        assert (kept, bench.rows(), bench.sink.positions(claim)) == ([], {}, {0: 5, 1: 0})

    def test_a_writer_that_is_fenced_keeps_nothing(self, bench: Bench, writer: SinkWriter) -> None:
        claim = claim_of(bench, 1)
        bench.sink.claim(claim)
        bench.sink.claim(claim_of(bench, 2))
        kept: list[ChangeRefusedError] = []
        with pytest.raises(SinkFencedError):
            writer.apply(with_quarantine(batch_of(claim, 5, unfit(5)), kept.extend))
        assert kept == []

    # --- at the same time ---

    def test_of_attempts_that_race_one_applies(self, bench: Bench) -> None:
        claim = claim_of(bench, 1)
        bench.sink.claim(claim)
        outcomes: list[object] = []
        start = threading.Barrier(4)

        def attempt(name: str) -> None:
            writer = bench.sink.writer()
            try:
                start.wait()
                outcomes.append(writer.apply(batch_of(claim, 5, upsert(5, 1, name), upsert(6, 2, name))).positions)
            except SinkError as error:
                outcomes.append(type(error))
            finally:
                writer.close()

        run_all([threading.Thread(target=attempt, args=(f"attempt {number}",)) for number in range(4)])
        assert sorted(outcomes, key=str) == [SinkMovedError, SinkMovedError, SinkMovedError, {0: 7}]
        assert len(set(bench.rows().values())) == 1

    def test_nothing_of_a_busy_writer_comes_after_the_next_claim(self, bench: Bench, writer: SinkWriter) -> None:
        old = claim_of(bench, 1)
        bench.sink.claim(old)
        ended: list[SinkError] = []

        def write_on() -> None:
            try:
                for offset in range(5, 100_000):
                    writer.apply(batch_of(old, offset, upsert(offset, offset, "old")))
            except SinkError as error:
                ended.append(error)

        thread = threading.Thread(target=write_on)
        thread.start()
        deadline = time.monotonic() + SECONDS_MAX
        while bench.sink.positions(old)[0] < 20:
            assert time.monotonic() < deadline
        new = claim_of(bench, 2)
        reached = bench.sink.claim(new)
        thread.join()
        assert [type(error) for error in ended] in ([SinkFencedError], [SinkUnavailableError])
        assert bench.sink.positions(new) == reached
        assert sorted(bench.rows()) == list(range(5, reached[0]))

    # --- a holder that does not let go ---

    def test_a_frozen_holder_is_ended_by_the_next_claim(self, bench: Bench, writer: SinkWriter) -> None:
        old = claim_of(bench, 1)
        bench.sink.claim(old)
        with bench.freeze_while_applying(batch_of(old, 5, upsert(5, 1, "frozen"))) as holder:
            try:
                assert psutil.Process(holder.pid).status() == psutil.STATUS_STOPPED
                new = claim_of(bench, 2)
                assert bench.sink.claim(new) == {0: 5, 1: 0}
                writer.apply(batch_of(new, 5, upsert(5, 1, "new")))
                holder.send_signal(signal.SIGCONT)
                said, _ = holder.communicate(timeout=SECONDS_MAX)
            finally:
                holder.kill()
        assert said.strip() == self.FROZEN_ENDS_AS
        assert bench.rows() == {1: "new"}
        with pytest.raises(SinkFencedError):
            writer.apply(batch_of(old, 5, upsert(5, 1, "frozen")))

    def test_a_frozen_holder_of_the_same_epoch_is_ended_by_the_seal(self, bench: Bench) -> None:
        claim = claim_of(bench, 1)
        bench.sink.claim(claim)
        with bench.freeze_while_applying(batch_of(claim, 5, upsert(5, 1, "frozen"))) as holder:
            try:
                assert bench.sink.seal(claim) == {0: 5, 1: 0}
                holder.send_signal(signal.SIGCONT)
                said, _ = holder.communicate(timeout=SECONDS_MAX)
            finally:
                holder.kill()
        assert said.strip() == self.FROZEN_ENDS_AS
        assert bench.rows() == {}

    # --- seal ---

    def test_after_a_seal_nothing_is_applied_under_its_epoch(self, bench: Bench, writer: SinkWriter) -> None:
        claim = claim_of(bench, 1)
        bench.sink.claim(claim)
        writer.apply(batch_of(claim, 5, upsert(5, 1, "a")))
        assert bench.sink.seal(claim) == {0: 6, 1: 0}
        assert bench.sink.seal(claim) == {0: 6, 1: 0}
        with pytest.raises(SinkFencedError, match="sealed"):
            writer.apply(batch_of(claim, 6, upsert(6, 1, "b")))
        with pytest.raises(SinkFencedError, match="sealed"):
            bench.sink.claim(claim)
        assert bench.rows() == {1: "a"}

    def test_a_table_that_is_gone_can_be_closed(self, bench: Bench, writer: SinkWriter) -> None:
        claim, closing = claim_of(bench, 1), claim_of(bench, 2)
        bench.sink.claim(claim)
        writer.apply(batch_of(claim, 5, upsert(5, 1, "a")))
        bench.drop()
        assert bench.sink.positions(closing) == {0: 6, 1: 0}
        assert bench.sink.claim(closing) == {0: 6, 1: 0}
        assert bench.sink.seal(closing) == {0: 6, 1: 0}
        bench.sink.forget(FEED)
        with pytest.raises(SinkFencedError, match="was removed"):
            bench.sink.claim(claim_of(bench, 3))

    def test_a_table_that_was_never_there_can_be_closed(self, bench: Bench) -> None:
        bench.drop()
        bench.sink.claim(claim_of(bench, 2))
        assert bench.sink.seal(claim_of(bench, 2)) == {0: 5, 1: 0}
        with pytest.raises(SinkFencedError):
            bench.sink.claim(claim_of(bench, 1))

    def test_a_higher_claim_reopens_what_was_sealed(self, bench: Bench, writer: SinkWriter) -> None:
        claim = claim_of(bench, 1)
        bench.sink.claim(claim)
        bench.sink.seal(claim)
        with pytest.raises(SinkFencedError):
            bench.sink.claim(claim_of(bench, 0))
        again = claim_of(bench, 2)
        assert bench.sink.claim(again) == {0: 5, 1: 0}
        writer.apply(batch_of(again, 5, upsert(5, 1, "a")))
        assert bench.rows() == {1: "a"}

    def test_a_seal_needs_no_claim_and_whoever_wrote_before_is_fenced(self, bench: Bench, writer: SinkWriter) -> None:
        claim = claim_of(bench, 2)
        bench.sink.claim(claim)
        writer.apply(batch_of(claim, 5, upsert(5, 1, "a")))
        with pytest.raises(SinkFencedError, match=r"3\.2"):
            bench.sink.seal(claim_of(bench, 1))
        assert bench.sink.seal(claim_of(bench, 3)) == {0: 6, 1: 0}
        with pytest.raises(SinkFencedError, match=r"3\.3"):
            writer.apply(batch_of(claim, 6, upsert(6, 1, "b")))
        for late in (2, 3):
            with pytest.raises(SinkFencedError):
                bench.sink.claim(claim_of(bench, late))
        assert bench.sink.claim(claim_of(bench, 4)) == {0: 6, 1: 0}
        assert bench.rows() == {1: "a"}

    def test_what_was_never_claimed_is_closed_whoever_has_the_table(self, bench: Bench, writer: SinkWriter) -> None:
        """Simulation, seed 903232: if that is refused, a claim of the same epoch may still come late, and stay open."""
        theirs = claim_of(bench, 1, identity=FeedIdentity("cluster-a", "0-8", "other"))
        bench.sink.claim(theirs)
        writer.apply(batch_of(theirs, 5, upsert(5, 1, "a")))
        claim = claim_of(bench, 2)
        with pytest.raises(SinkConflictError):
            bench.sink.claim(claim)
        assert bench.sink.seal(claim) == bench.sink.seal(claim) == {0: 5, 1: 0}
        writer.apply(batch_of(theirs, 6, upsert(6, 1, "b")))
        assert bench.rows() == {1: "b"}
        bench.sink.seal(theirs)
        with pytest.raises(SinkFencedError, match="sealed"):
            bench.sink.claim(claim)
        bench.sink.claim(claim_of(bench, 2, identity=theirs.identity))

    def test_what_is_sealed_is_sealed_again_under_a_higher_epoch(self, bench: Bench) -> None:
        for n in (1, 3):
            assert bench.sink.seal(claim_of(bench, n)) == {0: 5, 1: 0}
        for late in (2, 3):
            with pytest.raises(SinkFencedError):
                bench.sink.claim(claim_of(bench, late))

    def test_some_of_its_partitions_may_never_have_been_claimed(self, bench: Bench, writer: SinkWriter) -> None:
        part = claim_of(bench, 1, start={1: 3}, topic_id="first")
        bench.sink.claim(part)
        assert bench.sink.seal(claim_of(bench, 2, topic_id="second")) == {0: 5, 1: 3}
        assert bench.sink.claim(claim_of(bench, 3, topic_id="first")) == {0: 5, 1: 3}
        with pytest.raises(SinkFencedError):
            writer.apply(ChangeBatch(part, {1: OffsetRange(3, 4)}, [upsert(3, 1, "a", partition=1)]))

    def test_a_seal_takes_a_new_incarnation_along_and_no_older_one(self, bench: Bench) -> None:
        bench.sink.claim(claim_of(bench, 1, start={0: 9, 1: 9}))
        assert bench.sink.seal(claim_of(bench, 2, incarnation=1)) == {0: 5, 1: 0}
        assert bench.sink.seal(claim_of(bench, 3, start={0: 9, 1: 9})) == {0: 5, 1: 0}
        with pytest.raises(SinkConflictError, match="incarnation"):
            bench.sink.claim(claim_of(bench, 4))
        assert bench.sink.claim(claim_of(bench, 4, incarnation=1)) == {0: 5, 1: 0}

    def test_of_a_claim_and_a_seal_of_one_epoch_at_once_nothing_stays_open(self, bench: Bench) -> None:
        claim = claim_of(bench, 1)

        def late() -> None:
            with suppress(SinkFencedError):
                bench.sink.claim(claim)

        def last() -> None:
            assert bench.sink.seal(claim) == {0: 5, 1: 0}

        run_all([threading.Thread(target=each) for each in (last, late, last, late)])
        bench.sink.check([bench.table], FeedIdentity("cluster-a", "0-8", "other"))
        bench.sink.forget(FEED)

    # --- strangers ---

    @pytest.mark.parametrize(
        "stranger",
        [FeedIdentity("cluster-a", "0-8", "other"), FeedIdentity("cluster-b", "0-7", "shop")],
        ids=["a second feed", "another cluster"],
    )
    def test_an_open_table_belongs_to_one_feed_of_one_cluster(self, bench: Bench, stranger: FeedIdentity) -> None:
        claim = claim_of(bench, 1)
        bench.sink.claim(claim)
        theirs = claim_of(bench, 1, identity=stranger, epoch=Epoch(50, 1))
        with pytest.raises(SinkConflictError, match="shop"):
            bench.sink.claim(theirs)
        with pytest.raises(SinkConflictError, match="shop"):
            bench.sink.check([bench.table], stranger)
        assert list(bench.sink.check([bench.table], FEED)) == [bench.table]
        bench.sink.seal(claim)
        bench.sink.claim(theirs)
        with pytest.raises(SinkConflictError):
            bench.sink.claim(claim_of(bench, 2))

    # --- forget ---

    def test_a_feed_is_forgotten_once_it_is_sealed(self, bench: Bench, writer: SinkWriter) -> None:
        bench.sink.forget(FeedIdentity("cluster-a", "0-6", "of which there is nothing"))
        claim = claim_of(bench, 1)
        bench.sink.claim(claim)
        writer.apply(batch_of(claim, 5, upsert(5, 1, "a")))
        with pytest.raises(SinkConflictError, match="seal"):
            bench.sink.forget(FEED)
        bench.sink.seal(claim)
        bench.sink.forget(FEED)
        assert bench.sink.positions(claim) == {0: 5, 1: 0}
        with pytest.raises(SinkFencedError):
            writer.apply(batch_of(claim, 6, upsert(6, 1, "b")))
        assert bench.rows() == {1: "a"}

    def test_a_claim_that_arrives_after_its_feed_was_forgotten_is_refused(self, bench: Bench) -> None:
        """Else it would create the rows anew and begin at ``start`` again (docs/bugs.md)."""
        claim = claim_of(bench, 2)
        bench.sink.claim(claim)
        bench.sink.seal(claim)
        bench.sink.forget(FEED)
        for late in (1, 2, 3):
            with pytest.raises(SinkFencedError, match="removed"):
                bench.sink.claim(claim_of(bench, late))
            with pytest.raises(SinkFencedError, match="removed"):
                bench.sink.seal(claim_of(bench, late))
        bench.sink.forget(FEED)

    def test_a_feed_that_never_claimed_anything_is_remembered_as_well(self, bench: Bench) -> None:
        other = FeedIdentity("cluster-a", "0-8", "other")
        bench.sink.claim(claim_of(bench, 1, identity=other))
        bench.sink.forget(FEED)
        bench.sink.seal(claim_of(bench, 1, identity=other))
        for call in (bench.sink.claim, bench.sink.seal):
            with pytest.raises(SinkFencedError, match="removed"):
                call(claim_of(bench, 1))
        bench.sink.claim(claim_of(bench, 2, identity=other))
