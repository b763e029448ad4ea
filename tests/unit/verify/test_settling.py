"""When a row that differs counts as different: not before the feed and time have passed, nor while it changes."""

from collections.abc import Collection, Mapping

import pytest

from headgate.sources.last_written import LastWritten
from headgate.verify.pace import RowLimit
from headgate.verify.settling import Settled, Settling

SOURCE_AHEAD_MS = 5_000
"""The source's clock, before the one of this machine."""


class World:
    """Time passes by pauses; the feed applies one change in each pause until it is at ``stands_at``.

    ``written``: what the connector wrote last, from a second on; times of its commits are by the source's clock.
    ``every``: seconds between two heartbeats of each connector.
    """

    def __init__(
        self,
        *,
        end: int = 0,
        stands_at: int = 99,
        is_running: bool = True,
        written: Mapping[float, LastWritten] | None = None,
        unread: str = "",
        every: Collection[float] = (),
    ) -> None:
        self.seconds = 0.0
        self._every = every
        self._written, self._unread = written or {0: LastWritten()}, unread
        self.is_running = is_running
        self.is_given_up = False
        self.read_at: list[float] = []
        self._applied, self._end, self._stands_at = 0, end, stands_at

    def ends(self) -> Mapping[int, int]:
        return {0: self._end}

    def why_behind(self, ends: Mapping[int, int]) -> str:
        return f"is at {self._applied}" if self._applied < ends[0] else ""

    def source_ms(self) -> int:
        return self.wall() + SOURCE_AHEAD_MS

    def last_written(self) -> LastWritten:
        return next(told for at, told in reversed(self._written.items()) if at <= self.seconds)

    def beats(self, _within_seconds: float) -> tuple[int, ...]:
        return tuple(int(self.seconds // every) for every in self._every)

    def give_up(self) -> None:
        self.is_given_up = True

    def why_unread(self) -> str:
        return self._unread

    def wall(self) -> int:
        return int(self.seconds * 1000)

    def pause(self, seconds: float) -> None:
        self.seconds += seconds
        self._applied = min(self._applied + 1, self._stands_at)

    def settle(self, seconds: float, timeout_seconds: float = 60) -> Settled[str, int]:
        settling = Settling(
            self,
            seconds=seconds,
            timeout_seconds=timeout_seconds,
            now=lambda: self.seconds,
            pause=self.pause,
            wall=self.wall,
        )
        return settling.settle({"row": 1}, self._read)

    def _read(self, keys: Collection[str]) -> dict[str, int]:
        self.read_at.append(self.seconds)
        return dict.fromkeys(keys, 1)


def test_a_row_differs_if_it_has_not_changed_for_long_enough() -> None:
    world = World()
    assert world.settle(seconds=10) == Settled({"row": 1}, {}, "")
    assert world.read_at[-1] == 10


def test_without_a_wait_the_second_reading_decides() -> None:
    world = World()
    assert world.settle(seconds=0).differing == {"row": 1}
    assert world.read_at == [0]


def test_nothing_is_read_again_before_the_feed_has_applied_what_the_topic_had() -> None:
    world = World(end=20)
    assert world.settle(seconds=0).differing == {"row": 1}
    assert world.read_at == [10]


def test_rows_are_not_settled_where_the_feed_stays_behind() -> None:
    world = World(end=20, stands_at=5)
    assert world.settle(seconds=2, timeout_seconds=30) == Settled({}, {"row": 1}, "the feed is at 5")
    assert world.read_at == [32]


def test_nobody_waits_for_a_feed_that_does_not_run() -> None:
    world = World(end=20, is_running=False)
    assert world.settle(seconds=2) == Settled({}, {"row": 1}, "the feed is at 0")
    assert world.read_at == [0]
    assert World(is_running=False).settle(seconds=2).differing == {"row": 1}, "it has applied everything"


def written(commit_seconds: float, *, late: float) -> LastWritten:
    """A change of that time, written so much later. All in seconds."""
    append_ms = int((commit_seconds + late) * 1000)
    return LastWritten(int(commit_seconds * 1000) + SOURCE_AHEAD_MS, append_ms, int(late * 1000))


def test_a_connector_that_is_behind_is_waited_for() -> None:
    """It writes without a pause, 30 seconds late, until its changes are those of the first reading."""
    world = World(written={second / 2: written(second / 2 - 30, late=30) for second in range(200)})
    assert world.settle(seconds=5) == Settled({"row": 1}, {}, "")
    assert world.seconds == 30


def test_rows_are_not_settled_where_the_connector_stays_behind() -> None:
    world = World(written={second / 2: written(second / 2 - 30, late=30) for second in range(200)})
    settled = world.settle(seconds=2, timeout_seconds=20)
    assert settled == Settled({}, {"row": 1}, "the connector is still writing older changes, 30.0 s late")


@pytest.mark.parametrize(
    ("last", "seconds"),
    [
        (LastWritten(), 5),
        (written(-100, late=0), 5),
        (written(-1, late=1), 5),
        (written(-4, late=4), 12),
        (written(-9000, late=9001), 61),
        (LastWritten(None, 3_000), 8),
    ],
    ids=["empty topics", "long ago", "just before", "late", "days late", "no times"],
)
def test_a_connector_that_has_been_quiet_for_long_enough_has_written_everything(
    last: LastWritten, seconds: float
) -> None:
    """For as long as a row must not change, or three times as long as it was late, if not longer than the wait."""
    world = World(written={0: last})
    assert world.settle(seconds=5).differing == {"row": 1}
    assert world.seconds == seconds


COPYING = "the connector may still be copying"


def test_a_connector_that_pauses_while_it_copies_tables_is_not_taken_for_a_quiet_one() -> None:
    """As on a busy machine: its last row came long ago, and it sends no heartbeats before its snapshot is over."""
    world = World(written={0: LastWritten(None, -100_000, None, copying=COPYING)})
    assert world.settle(seconds=2, timeout_seconds=20) == Settled({}, {"row": 1}, COPYING)


def test_once_the_snapshot_is_over_a_row_is_settled_when_the_connector_had_time_for_what_came_during_it() -> None:
    copied: dict[float, LastWritten] = {
        0: LastWritten(None, 1_000, None, copying=COPYING),
        10: LastWritten(None, 1_000, None),
    }
    world = World(written=copied)
    assert world.settle(seconds=2, timeout_seconds=30).differing == {"row": 1}
    assert world.seconds == 31, "its delay is not known, so it may be as long as the wait"
    world = World(written={**copied, 12: written(11, late=1)})
    assert world.settle(seconds=2, timeout_seconds=30).differing == {"row": 1}
    assert world.seconds == 12, "a change that is newer than the row"


def test_heartbeats_show_that_a_snapshot_is_over_whose_last_row_another_topic_has() -> None:
    world = World(written={0: LastWritten(None, -100_000, None, copying=COPYING)}, every=(3,))
    assert world.settle(seconds=2).differing == {"row": 1}


def test_topics_that_could_not_be_read_show_nothing_even_with_heartbeats() -> None:
    world = World(written={0: LastWritten(unread="they were not read")}, every=(3,))
    assert world.settle(seconds=2, timeout_seconds=20) == Settled({}, {"row": 1}, "they were not read")


def test_a_connector_without_a_heartbeat_since_is_not_taken_for_a_quiet_one() -> None:
    last = {0: written(-100, late=0)}
    world = World(written=last, every=(3, 7))
    assert world.settle(seconds=2).differing == {"row": 1}
    assert world.seconds == 7, "each of them must have sent one"
    settled = World(written=last, every=(3, 1000)).settle(seconds=2, timeout_seconds=30)
    assert settled == Settled({}, {"row": 1}, "the connector has sent no heartbeat since: is it running?")


def test_a_log_that_nobody_reads_is_not_taken_for_a_quiet_source() -> None:
    world = World(written={0: written(-100, late=0)}, unread="nobody reads it")
    assert world.settle(seconds=2, timeout_seconds=3) == Settled({}, {"row": 1}, "nobody reads it")
    newer = World(written={0: written(1, late=1)}, unread="nobody reads it")
    assert newer.settle(seconds=2).differing == {"row": 1}, "it was written before that"


def test_a_connector_that_was_waited_for_in_vain_is_not_waited_for_again() -> None:
    """A feed has many tables. One whose rows can be settled all the same is settled."""
    world = World(written={0: written(-100, late=0)}, unread="nobody reads it")
    assert world.settle(seconds=2, timeout_seconds=60).unsettled == {"row": 1}
    assert world.seconds == 62
    assert world.settle(seconds=2, timeout_seconds=60).unsettled == {"row": 1}
    assert world.seconds == 64
    again = World(written={0: written(1, late=1)}, unread="nobody reads it")
    again.give_up()
    assert again.settle(seconds=2).differing == {"row": 1}


@pytest.mark.parametrize(("per_second", "seconds"), [(None, 0.0), (100, 7.0)])
def test_no_more_rows_are_compared_than_allowed(per_second: float | None, seconds: float) -> None:
    world = World()
    limit = RowLimit(per_second, now=lambda: world.seconds, pause=world.pause)
    for rows in (100, 500, 0, 100):
        limit.compared(rows)
    assert world.seconds == seconds


def test_what_took_time_anyway_is_not_waited_for() -> None:
    world = World()
    limit = RowLimit(100, now=lambda: world.seconds, pause=world.pause)
    world.seconds += 3
    limit.compared(200)
    assert world.seconds == 3
    limit.compared(200)
    assert world.seconds == 5
