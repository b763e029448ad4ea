"""How large a writer's transactions may be, on fast links and slow ones."""

from headgate.generation.changelog.core.outbox import Batch, PendingChange, Written
from headgate.generation.changelog.core.pacing import COMMIT_SECONDS, COMMIT_SECONDS_MAX, BatchPace


def batch(changes: int, size_bytes: int) -> Batch:
    each = size_bytes // changes
    return Batch(tuple((PendingChange(number, 0, b"", b"x" * each), 0) for number in range(changes)), Written())


def link(pace: BatchPace, bytes_per_second: float, change_bytes: int, waiting: int) -> tuple[int, int]:
    """Write so many changes over a link; how many transactions were tried, and how many of them timed out."""
    tried = failed = 0
    while waiting:
        assert tried < 1_000, "it must end"
        count = max(1, min(pace.changes, pace.size_bytes // change_bytes, waiting))
        seconds = count * change_bytes / bytes_per_second
        tried += 1
        if seconds > pace.seconds:
            failed += 1
            pace.timed_out(batch(count, count * change_bytes))
        else:
            waiting -= count
            pace.committed(batch(count, count * change_bytes), seconds)
    return tried, failed


def test_a_fast_link_keeps_full_batches() -> None:
    pace = BatchPace()
    assert link(pace, 100e6, 60_000, 2_000)[1] == 0
    assert link(pace, 100e6, 100, 10_000) == (10, 0)


def test_a_slow_link_gets_smaller_batches_and_loses_few_transactions() -> None:
    tried, failed = link(BatchPace(), 0.3e6, 60_000, 2_000)
    assert failed <= 5, (tried, failed)


def test_one_change_that_needs_longer_gets_longer() -> None:
    pace = BatchPace()
    assert link(pace, 0.3e6, 5_000_000, 3)[1] <= 5
    assert COMMIT_SECONDS < pace.seconds <= COMMIT_SECONDS_MAX


def test_a_link_that_becomes_fast_again_gets_full_batches_and_short_transactions_again() -> None:
    pace = BatchPace()
    link(pace, 0.3e6, 5_000_000, 3)
    assert pace.changes == 1
    link(pace, 100e6, 60_000, 2_000)
    assert (pace.size_bytes, pace.seconds) == (BatchPace().size_bytes, COMMIT_SECONDS)
    link(pace, 100e6, 100, 100_000)
    assert pace.changes == BatchPace().changes


def test_a_refused_batch_is_halved_until_one_change_is_left() -> None:
    pace, sizes = BatchPace(), []
    while pace.changes > 1:
        sizes.append(pace.changes)
        pace.refused(batch(pace.changes, pace.changes))
    assert sizes == [1000, 500, 250, 125, 62, 31, 15, 7, 3]


def test_batches_grow_only_while_they_are_full_by_changes_or_by_bytes() -> None:
    for changes, size_bytes, grown in ((10, 900, 2), (10, 200, 1), (60, 200, 2)):
        pace = BatchPace()
        pace.timed_out(batch(400, 4_000))
        assert (pace.changes, pace.size_bytes) == (100, 1_000)
        pace.committed(batch(changes, size_bytes), 0.0)
        assert (pace.changes, pace.size_bytes) == (grown * 100, grown * 1_000), (changes, size_bytes)
