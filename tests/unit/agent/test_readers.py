"""The readers that a worker keeps: whose, for how long, and that nobody has to come for an idle one to be let go."""

import threading
import time
from collections.abc import Callable, Mapping

import pytest

from headgate.agent.lane.readers import READER_IDLE_SECONDS, READERS_MAX, Readers
from headgate.sources.reader import LogReader

DEADLINE_SECONDS = 10.0


class _Reader(LogReader):
    def __init__(self, properties: Mapping[str, str]) -> None:
        super().__init__(properties)
        self.closed = False

    def close(self) -> None:
        self.closed = True
        super().close()


class _Worker:
    """Readers by a clock that only the test sets; nobody looks for idle ones but in ``looking``."""

    def __init__(self, look_seconds: float = 3_600.0) -> None:
        self.now = 0.0
        self.readers = Readers(_Reader, lambda: self.now, look_seconds)

    def serve(self, lane: str) -> _Reader:
        with self.readers.lent(lane, {}) as kept:
            assert isinstance(kept.reader, _Reader)
            assert not kept.reader.closed
            return kept.reader


def _until(fact: Callable[[], bool]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while not fact():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_lane_gets_its_own_reader_again() -> None:
    worker = _Worker()
    first, other = worker.serve("a"), worker.serve("b")
    assert first is not other
    assert worker.serve("a") is first
    assert worker.serve("b") is other


def test_of_too_many_lanes_that_served_longest_ago_loses_its_reader() -> None:
    worker = _Worker()
    readers = {lane: worker.serve(lane) for lane in map(str, range(READERS_MAX))}
    worker.serve("0")
    worker.serve("one more")
    assert [lane for lane, reader in readers.items() if reader.closed] == ["1"]
    assert worker.serve("0") is readers["0"]


def test_the_reader_of_a_task_that_failed_is_not_lent_again() -> None:
    worker = _Worker()
    first = worker.serve("a")
    with pytest.raises(ZeroDivisionError), worker.readers.lent("a", {}):
        raise ZeroDivisionError
    assert first.closed
    assert worker.serve("a") is not first


def test_what_a_task_leaves_with_its_reader_is_there_for_the_next_one_and_gone_with_the_reader() -> None:
    worker = _Worker()
    with worker.readers.lent("a", {}) as kept:
        assert kept.share is None
        kept.share = 1
    with worker.readers.lent("a", {}) as kept:
        assert kept.share == 1
    worker.now += READER_IDLE_SECONDS + 1
    worker.readers.close_idle()
    with worker.readers.lent("a", {}) as kept:
        assert kept.share is None


def test_an_idle_reader_is_let_go_and_one_in_use_stays() -> None:
    worker = _Worker()
    idle = worker.serve("a")
    worker.now += READER_IDLE_SECONDS
    used = worker.serve("b")
    assert worker.readers.close_idle(), "none is idle for longer than it may be"
    assert not idle.closed
    worker.now += 1
    assert worker.readers.close_idle()
    assert (idle.closed, used.closed) == (True, False)
    worker.now += READER_IDLE_SECONDS
    assert not worker.readers.close_idle()
    assert used.closed


def test_idle_readers_are_let_go_though_no_task_ever_comes_and_again_after_the_next_one() -> None:
    worker = _Worker(look_seconds=0.001)
    for _ in range(3):
        reader = worker.serve("a")
        worker.now += READER_IDLE_SECONDS + 1
        _until(lambda reader=reader: reader.closed)


def test_a_reader_is_never_let_go_while_a_task_has_it() -> None:
    worker = _Worker()
    looked = threading.Event()

    def look() -> None:
        worker.readers.close_idle()
        looked.set()

    worker.serve("a")
    with worker.readers.lent("a", {}) as kept:
        worker.now += READER_IDLE_SECONDS + 1
        thread = threading.Thread(target=look)
        thread.start()
        assert not looked.wait(0.05)
        assert isinstance(kept.reader, _Reader)
        assert not kept.reader.closed
    thread.join(DEADLINE_SECONDS)
    assert worker.serve("a") is kept.reader
