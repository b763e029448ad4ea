"""The views notice that Faust's client has stopped reading a partition, and blame nobody without proof."""

import pytest

from headgate.app.exit_codes import ExitCode, exit_code_of
from headgate.eventlog.lasting_reader import LOOK_SECONDS, STALL_SECONDS
from headgate.eventlog.log import Partition, Placed
from headgate.records.base import Fact
from headgate.records.control import SessionEnded
from headgate.records.keys import SessionKey
from headgate.views.service import ReadingStoppedError, ReadingWatch
from headgate_lab.memory_log.log import MemoryBroker

DISPATCH = Partition("dispatch", 0)
WRITTEN = Placed(DISPATCH, Fact(SessionKey("a", "s"), SessionEnded(1, "over", 0)))


class Watched:
    def __init__(self) -> None:
        self.now = 0.0
        self.broker = MemoryBroker()
        self.log = self.broker.client()
        self.watch = ReadingWatch(self.log, [DISPATCH], lambda: self.now)

    def look(self, at: int, seconds: float = LOOK_SECONDS) -> str | None:
        self.now += seconds
        return self.watch.stopped({DISPATCH: at} if at >= 0 else {})


@pytest.fixture
def watched() -> Watched:
    return Watched()


def test_a_partition_that_stays_below_its_records_is_noticed(watched: Watched) -> None:
    for _ in range(3):
        watched.broker.append(WRITTEN)
    said = [watched.look(0) for _ in range(10)]
    assert next(number for number, each in enumerate(said) if each) * LOOK_SECONDS >= STALL_SECONDS
    assert said[-1] == "dispatch/0 has stayed at offset 0 for 10 s, below the record at offset 1"


def test_the_process_then_ends_with_an_expected_error(watched: Watched) -> None:
    watched.broker.append(WRITTEN)

    def look_on() -> None:
        for _ in range(10):
            watched.now += LOOK_SECONDS
            watched.watch.check({})

    with pytest.raises(ReadingStoppedError, match="stopped reading: dispatch/0") as ended:
        look_on()
    assert exit_code_of(ended.value) is ExitCode.LOG


def test_one_that_gets_on_or_has_read_all_is_left_alone(watched: Watched) -> None:
    assert [watched.look(-1) for _ in range(10)] == [None] * 10
    for number in range(20):
        watched.broker.append(WRITTEN)
        watched.broker.append(WRITTEN)
        assert watched.look(number) is None
    assert [watched.look(39) for _ in range(10)] == [None] * 10


def write_a_mark(watched: Watched) -> None:
    """Move the end on by what no reader is given, as each transaction does."""
    watched.broker.leave_open("owner", [WRITTEN])
    watched.broker.end_transaction("owner", commit=False)


def test_a_record_behind_marks_is_not_missing_before_it_is_written(watched: Watched) -> None:
    """Seen in containers: a quiet partition got a record just when its marks were found to be all that it had."""
    watched.broker.append(WRITTEN)
    write_a_mark(watched)
    while watched.now < STALL_SECONDS:
        assert watched.look(0) is None
    written = watched.broker.append(WRITTEN)
    assert watched.look(0) is None, "it has had no time to arrive"
    assert watched.look(written) is None
    write_a_mark(watched)
    assert [watched.look(written) for _ in range(10)] == [None] * 10


def test_a_record_behind_marks_that_does_not_arrive_is_noticed(watched: Watched) -> None:
    watched.broker.append(WRITTEN)
    write_a_mark(watched)
    while watched.now < STALL_SECONDS:
        assert watched.look(0) is None
    missing = watched.broker.append(WRITTEN)
    said = [watched.look(0) for _ in range(10)]
    assert said[0] is None
    assert said[-1] == f"dispatch/0 has stayed at offset 0 for 10 s, below the record at offset {missing}"


def test_a_process_that_stood_still_and_brokers_that_do_not_answer_prove_nothing(watched: Watched) -> None:
    watched.broker.append(WRITTEN)
    for _ in range(5):
        assert watched.look(-1) is None
        assert watched.look(-1, 10 * STALL_SECONDS) is None
    watched.log.cut()
    assert [watched.look(-1) for _ in range(10)] == [None] * 10


def test_the_views_know_since_when_no_broker_has_answered(watched: Watched) -> None:
    watched.look(-1)
    assert watched.watch.silent_seconds == 0
    watched.log.cut()
    for _ in range(3):
        watched.look(-1)
    assert watched.watch.silent_seconds == 3 * LOOK_SECONDS
