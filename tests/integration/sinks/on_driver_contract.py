"""The contract of sinks that commit on the driver: what other processes do, frozen or killed. Subclass, give ``bench``.

It contains the contract of every sink.
"""

import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import Protocol

import pytest

from headgate.config.crash_points import CrashPoint
from headgate.formats.change import Change, Operation
from headgate.records.control import Positions
from headgate.sinks.contract import (
    ChangeBatch,
    OffsetRange,
    Sink,
    SinkError,
    SinkFencedError,
    SinkMovedError,
    SinkWriter,
    ValueRefusedError,
)
from integration.sinks.contract import SECONDS_MAX, Bench, SinkContract, batch_of, claim_of, upsert


class DriverBench(Bench, Protocol):
    """A sink that commits on the driver, and other processes that use it."""

    def another(self) -> Sink:
        """The same sink as another process has it."""
        ...

    def size(self) -> int:
        """How many rows or records a reader finds."""
        ...

    def freeze_at(self, point: CrashPoint, batch: ChangeBatch) -> "subprocess.Popen[str]":
        """A process that stops there while it applies the batch, and in the end prints what became of it."""
        ...

    def answers_lost(self) -> AbstractContextManager[None]:
        """In here commits are made, and this process does not hear of it."""
        ...


class OnDriverContract(SinkContract):
    FROZEN_ENDS_AS = SinkFencedError.code  # it holds no session, and finds out when it commits
    TRUNCATE_REFUSED: str

    @pytest.fixture
    def bench(self) -> DriverBench:
        raise NotImplementedError

    @pytest.fixture
    def writer(self, bench: DriverBench) -> Iterator[SinkWriter]:
        made = bench.sink.writer()
        yield made
        made.close()

    @pytest.fixture(params=[CrashPoint.ROWS_SENT, CrashPoint.BEFORE_COMMIT, CrashPoint.COMMITTED])
    def point(self, request: pytest.FixtureRequest) -> CrashPoint:
        """Where a process stops. Of a commit that is one call of a library, there is no BEFORE_COMMIT."""
        return CrashPoint(request.param)

    @pytest.mark.skip(reason="there is no earlier version of this sink")
    def test_a_sink_of_before_source_tables_were_kept_is_taken_on(self) -> None: ...

    def test_a_truncate_is_refused_by_whoever_has_a_part_of_the_table(
        self, bench: DriverBench, writer: SinkWriter
    ) -> None:
        """And by a topic of one partition, too."""
        alone = claim_of(bench, 4, topic="shop.public.alone", start={0: 0})
        bench.sink.claim(alone)
        truncate = Change(0, 0, Operation.TRUNCATE, {}, None, None, 0)
        with pytest.raises(ValueRefusedError, match=rf"{self.TRUNCATE_REFUSED}.*offset 0"):
            writer.apply(ChangeBatch(alone, {0: OffsetRange(0, 1)}, [truncate]))

    def test_a_process_that_was_overtaken_while_frozen_finds_out_and_nothing_is_doubled(
        self, bench: DriverBench, writer: SinkWriter, point: CrashPoint
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

    def test_a_process_that_was_frozen_while_another_claimed_and_wrote_nothing_is_refused(
        self, bench: DriverBench, point: CrashPoint
    ) -> None:
        """So it is the claim that refuses it, not the rows of the next holder."""
        old = claim_of(bench, 1)
        bench.sink.claim(old)
        with bench.freeze_at(point, batch_of(old, 5, upsert(5, 1, "frozen"))) as frozen:
            bench.another().claim(claim_of(bench, 2))
            frozen.send_signal(signal.SIGCONT)
            said, _ = frozen.communicate(timeout=SECONDS_MAX)
        assert said == ("applied" if point is CrashPoint.COMMITTED else "sink_fenced")
        assert bench.size() == (1 if point is CrashPoint.COMMITTED else 0)

    def test_what_a_killed_process_has_not_committed_is_written_by_the_next(
        self, bench: DriverBench, point: CrashPoint
    ) -> None:
        old = claim_of(bench, 1)
        bench.sink.claim(old)
        with bench.freeze_at(point, batch_of(old, 5, upsert(5, 1, "killed"))) as killed:
            killed.kill()
        new = claim_of(bench, 2)
        position = bench.sink.claim(new)[0]
        bench.sink.writer().apply(batch_of(new, position, upsert(position, 2, "new")))
        assert bench.rows() == ({1: "killed", 2: "new"} if point is CrashPoint.COMMITTED else {2: "new"})

    def test_of_two_claimers_at_once_the_lower_one_writes_nothing(self, bench: DriverBench, writer: SinkWriter) -> None:
        first = claim_of(bench, 1)
        bench.sink.claim(first)
        writer.apply(batch_of(first, 5, upsert(5, 1, "a")))
        reached: dict[int, Positions | type[Exception]] = {}

        def take(n: int) -> None:
            try:
                reached[n] = bench.another().claim(claim_of(bench, n))
            except SinkError as error:
                reached[n] = type(error)

        threads = [threading.Thread(target=take, args=(n,)) for n in (2, 3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(SECONDS_MAX)
        assert reached[3] == {0: 6, 1: 0}
        assert reached[2] in ({0: 6, 1: 0}, SinkFencedError)
        with pytest.raises(SinkFencedError):
            bench.another().writer().apply(batch_of(claim_of(bench, 2), 6, upsert(6, 2, "lower")))
        writer.apply(batch_of(claim_of(bench, 3), 6, upsert(6, 2, "higher")))
        assert bench.rows() == {1: "a", 2: "higher"}

    def test_a_lost_answer_is_found_out_by_the_next_batch(self, bench: DriverBench, writer: SinkWriter) -> None:
        claim = claim_of(bench, 1)
        bench.sink.claim(claim)
        writer.apply(batch_of(claim, 5, upsert(5, 1, "a")))
        with bench.answers_lost(), pytest.raises(SinkError) as refused:
            writer.apply(batch_of(claim, 6, upsert(6, 2, "b")))
        assert refused.value.retryable
        try:
            writer.apply(batch_of(claim, 6, upsert(6, 2, "b")))
        except SinkMovedError:
            assert bench.sink.positions(claim) == {0: 7, 1: 0}
        assert (bench.rows(), bench.size()) == ({1: "a", 2: "b"}, 2)
