"""Writers of one process share two threads: what is wrong with one's report is that one's error."""

import queue
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import closing
from typing import Any

import pytest

from headgate.eventlog.log import LogError, Partition, Placed
from headgate.generation.changelog.shell import shared_tail
from headgate.generation.changelog.shell.shared_tail import TailCrashedError, WriterTail
from headgate.records.base import Fact
from headgate.records.generation import GenerationOwnerKey, WriterKey, WriterReported
from headgate.supervision.threads import SUPERVISOR
from headgate_lab.memory_log.log import MemoryBroker, MemoryLog
from support import build
from support.waiting import eventually


@pytest.fixture
def log() -> MemoryLog:
    broker = MemoryBroker()
    announced = build.owner_announced(schema_version=2, level=2)
    broker.append(Placed(Partition("announce", 0), Fact(GenerationOwnerKey(0), announced)), 2)
    return broker.client()


@pytest.fixture
def tails(log: MemoryLog) -> Iterator[list[WriterTail]]:
    made = [WriterTail(log, "s", f"w{number}", threading.Event()) for number in range(3)]  # type: ignore[arg-type]
    for tail in made:
        tail.read_to_end()
    yield made
    for tail in made:
        tail.close()


def report(writer: str, promise: Any) -> Fact:
    return Fact(WriterKey("s", writer, 1), WriterReported(1, 2, promise, leaving=False, loads=(), reported_ms=0))


def test_a_report_that_cannot_be_encoded_is_its_writers_error_and_the_others_are_written(
    log: MemoryLog, tails: list[WriterTail]
) -> None:
    """They are written together, so at first nobody knows whose it is."""
    shared = tails[0]._shared
    written: list[str] = []

    class Strict:
        def write(self, placed: list[Placed], _timeout_seconds: float) -> None:
            for each in placed:
                if each.fact.value.promise is None:  # type: ignore[union-attr]
                    raise TypeError("a promise must be an integer")
            written.extend(each.fact.key.writer for each in placed)  # type: ignore[attr-defined]

    facts = [report("w0", 5), report("w1", None), report("w2", 7)]
    waiting = [shared_tail._Waiting(Placed(Partition("generation", 0), fact), Future()) for fact in facts]
    shared._write_together(Strict(), waiting)  # type: ignore[arg-type]
    assert [each.done.exception() is None for each in waiting] == [True, False, True]
    assert isinstance(waiting[1].done.exception(), TypeError)
    assert written == ["w0", "w2"]


def test_a_crash_is_every_writers_error_also_of_those_that_wait(tails: list[WriterTail]) -> None:
    shared = tails[0]._shared
    waiting = shared_tail._Waiting(Placed(Partition("generation", 0), report("w0", 1)), Future())
    late: queue.Queue[Any] = queue.Queue()
    late.put(waiting)
    shared._reports = late
    shared._on_crash(ZeroDivisionError("a bug"))
    assert isinstance(waiting.done.exception(), TailCrashedError) or waiting.done.exception() is None
    for tail in tails:
        with pytest.raises(TailCrashedError, match="ZeroDivisionError: a bug"):
            tail.take()
        with pytest.raises(LogError, match="has crashed"):
            tail.say(report(tail.writer, 1))
    with closing(WriterTail(tails[0]._log, "s", "w9", threading.Event())) as joined, pytest.raises(TailCrashedError):
        joined.take()
    assert SUPERVISOR.fatal == ()


def test_a_topic_that_is_no_longer_read_is_told_to_every_writer(log: MemoryLog, tails: list[WriterTail]) -> None:
    at = Partition("generation", 0)
    log.hold(at)
    log.broker.append(Placed(at, report("w9", 1)), 2)
    log.stop_reading(at, told=True)
    eventually(lambda: all(tail.stopped is not None for tail in tails), "it is told")
    log.release(at)
    eventually(lambda: all(tail.stopped is None for tail in tails), "it has been read")
