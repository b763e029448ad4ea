"""Writers, a reader and the owner of generations on a real broker."""

import time
import uuid
from collections import defaultdict
from contextlib import closing
from typing import Any

import pytest

from headgate.eventlog.kafka import KafkaLog
from headgate.generation import ChangeReader, ChangeWriter
from headgate.generation.changelog.core.life import Act, Write
from headgate.generation.changelog.core.outbox import PositionError, Written
from headgate.generation.changelog.core.planning import resize
from headgate.generation.changelog.shell.change_checks import ChangeTooLargeError, ChangeTypeError
from headgate.generation.changelog.shell.shared_tail import TailCrashedError
from headgate.generation.changelog.shell.wire import MESSAGE_BYTES_MAX
from headgate.generation.changelog.shell.writer import (
    ChangeRefusedError,
    WriterCrashedError,
    WriterError,
    WriterReplacedError,
    WriterStalledError,
)
from headgate.generation.changelog.shell.writer_acts import WriterActs
from headgate.generation.core.state import current_of
from headgate.generation.shell.tail import GenerationTail
from headgate.records.base import Fact
from headgate.records.control import OutcomeStatus, RequestSettled
from headgate.records.generation import (
    GenerationOutcomeKey,
    GenerationRequested,
    GenerationRequestKey,
    GenerationRequestKind,
    StreamsRecut,
)
from headgate.supervision.threads import SUPERVISOR
from support.topic_changes import change_settings
from support.waiting import eventually

from .conftest import WAIT_SECONDS

pytestmark = pytest.mark.integration

SET = "orders"


class Operator:
    """Asks the owner for things, and waits."""

    def __init__(self, log: KafkaLog, name: str = SET) -> None:
        self.name = name
        self.topic = f"{log.cluster}.{name}.data"
        self.tail = GenerationTail(log, name, "operator", reports_of=lambda _writer: True)

    def ask(self, kind: GenerationRequestKind, **fields: Any) -> RequestSettled:
        key = GenerationRequestKey(self.name, uuid.uuid4().hex)
        given = {"topic": "", "partitions": 0, "streams": 0, "epoch": 0, "changes": (), **fields}
        self.tail.say(Fact(key, GenerationRequested(kind=kind, requested_by="test", requested_ms=0, **given)))
        outcome = GenerationOutcomeKey(self.name, key.request)
        eventually(lambda: self._is_settled(outcome), f"an outcome of {kind}")
        return self.tail.state.outcomes[outcome]

    def create(self, partitions: int = 24, streams: int = 1) -> None:
        done = self.ask(GenerationRequestKind.CREATE, topic=self.topic, partitions=partitions, streams=streams)
        assert done.status is OutcomeStatus.DONE, done.reason

    def resize(self, streams: int) -> RequestSettled:
        self.tail.read_to_end()
        current = current_of(self.tail.state.sets[self.name])
        assert current is not None
        changes = tuple(
            StreamsRecut(tuple(map(str, change.streams)), change.cuts)
            for change in resize(self.tail.state.map_of(self.name, current.epoch), streams)
        )
        return self.ask(GenerationRequestKind.SWITCH, epoch=current.epoch, changes=changes)

    def phases(self) -> dict[int, str]:
        self.tail.read_to_end()
        return {each.epoch: each.phase.value for each in self.tail.state.sets[self.name].generations}

    def _is_settled(self, outcome: GenerationOutcomeKey) -> bool:
        self.tail.follow(0.1)
        found = self.tail.state.outcomes.get(outcome)
        return found is not None and found.status is not OutcomeStatus.ACCEPTED


def key_of(writer: str, position: int) -> bytes:
    return f"{writer}-{position % 7}".encode()


def read_all(reader: ChangeReader, count: int) -> dict[bytes, list[int]]:
    """The positions of each key in the order in which they were read."""
    found: dict[bytes, list[int]] = defaultdict(list)
    deadline = time.monotonic() + WAIT_SECONDS
    while sum(map(len, found.values())) < count:
        assert time.monotonic() < deadline, f"only {sum(map(len, found.values()))} of {count} changes"
        for change in reader.poll(0.2):
            assert change.key is not None
            found[change.key].append(change.position)
        reader.commit()
    return found


def in_order(found: dict[bytes, list[int]]) -> None:
    for key, positions in found.items():
        assert positions == sorted(positions), key
        assert len(set(positions)) == len(positions), key


def test_what_one_writer_gives_wrongly_is_its_own_error(log: KafkaLog, owner: Any) -> None:
    """Bad changes are refused by ``write``; the writer itself and its neighbours in the process continue."""
    operator = Operator(log)
    operator.create()
    with ChangeWriter(log, SET, "w1") as bad, ChangeWriter(log, SET, "w2") as good:
        assert bad.write(b"k", b"v", 0)
        for position in (1.5, 2**63):
            with pytest.raises(PositionError, match="from 0 to"):
                bad.write(b"k", b"v", position)  # type: ignore[arg-type]
        with pytest.raises(ChangeTypeError, match="value must be bytes"):
            bad.write(b"k", {"a": 1}, 1)  # type: ignore[arg-type]
        with pytest.raises(ChangeTooLargeError, match=f"takes {MESSAGE_BYTES_MAX}"):
            bad.write(b"k", b"x" * MESSAGE_BYTES_MAX, 1)
        assert bad.write(b"k", b"x" * 2_000_000, 2**63 - 2), "twice the size that Kafka's defaults allow"
        bad.flush()
        assert operator.resize(4).status is OutcomeStatus.DONE, "the highest position can be promised"
        good.write(b"g", b"v", 0)
        assert (bad.flush(), good.flush()) == (2**63 - 2, 0)
        assert bad.look().last_error == ""
    with closing(ChangeReader(log, SET, "r")) as reader:
        assert read_all(reader, 3) == {b"k": [0, 2**63 - 2], b"g": [0]}


def test_a_change_that_kafka_refuses_for_its_size_ends_the_writer_behind_all_before_it(
    log: KafkaLog, owner: Any
) -> None:
    """The topic's limit was lowered while the writer ran, so it finds out from the broker."""
    operator = Operator(log)
    operator.create()
    writer = ChangeWriter(log, SET, "w1")
    assert writer.position == -1
    change_settings(log.connection.admin, operator.topic, {"max.message.bytes": "10000"})

    def write_all() -> None:
        for position in range(8):
            writer.write(b"k", b"x" * (30_000 if position == 5 else 10), position)
        writer.flush()

    # A broker that answers at once is met by the next write, one that takes its time by flush.
    with pytest.raises(ChangeRefusedError, match="refused the change at position 5, of 30001 bytes") as refused:
        write_all()
    assert refused.value.position == 5
    writer.close()
    with closing(ChangeWriter(log, SET, "w1")) as again:
        assert again.position == 4
        with pytest.raises(ChangeTooLargeError, match="takes 10000"):
            again.write(b"k", b"x" * 30_000, 5)


class _BrokenActs(WriterActs):
    def carry_out(self, act: Act, life: int) -> Written | None:
        if isinstance(act, Write):
            raise ZeroDivisionError("a bug")
        return super().carry_out(act, life)


def test_a_bug_in_the_writers_thread_is_raised_by_the_next_call(
    log: KafkaLog, owner: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("headgate.generation.changelog.shell.writer.WriterActs", _BrokenActs)
    Operator(log).create()
    writer = ChangeWriter(log, SET, "w1")
    writer.write(b"k", b"v", 0)
    with pytest.raises(WriterCrashedError, match="ZeroDivisionError: a bug"):
        writer.flush()
    writer.close()
    assert SUPERVISOR.counts["change-writer"] == 1
    monkeypatch.undo()
    with closing(ChangeWriter(log, SET, "w1")) as again:
        assert again.position == -1


def test_a_crash_of_the_shared_thread_ends_every_writer_and_says_so(log: KafkaLog, owner: Any) -> None:
    Operator(log).create()
    writers = [ChangeWriter(log, SET, f"w{number}") for number in range(2)]
    assert [writer.position for writer in writers] == [-1, -1]
    writers[0]._tail._shared._reader.poll = None  # type: ignore[assignment]
    for writer in writers:
        eventually(lambda writer=writer: _is_crashed(writer), "the writer hears of it")  # type: ignore[misc]
        writer.close()
    with closing(ChangeWriter(log, SET, "w1")) as again:
        assert again.position == -1, "with the last writer the broken threads are gone"


def _is_crashed(writer: ChangeWriter) -> bool:
    try:
        writer.look()
    except TailCrashedError:
        return True
    return False


def test_a_log_is_switched_while_it_is_written_and_every_key_keeps_its_order(log: KafkaLog, owner: Any) -> None:
    operator = Operator(log)
    operator.create()
    with ChangeWriter(log, SET, "w1") as one, ChangeWriter(log, SET, "w2") as two:
        assert (one.position, two.position) == (-1, -1)
        position = 0
        for streams in (4, 16, 1):
            for _ in range(200):
                for name, writer in (("w1", one), ("w2", two)):
                    assert writer.write(key_of(name, position), b"x", position)
                position += 1
            assert operator.resize(streams).status is OutcomeStatus.DONE
        for _ in range(50):
            for name, writer in (("w1", one), ("w2", two)):
                writer.write(key_of(name, position), b"x", position)
            position += 1
        assert one.flush() == position - 1
    with closing(ChangeReader(log, SET, "r")) as reader:
        found = read_all(reader, 2 * position)
        in_order(found)
        assert reader.gaps == []
        assert reader.refused == 0

        def is_drained() -> bool:
            assert reader.poll(0.1) == []
            reader.commit()
            return "superseded" not in operator.phases().values()

        eventually(is_drained, "drained")
    assert operator.phases() == {1: "drained", 2: "drained", 3: "drained", 4: "committed"}
    done = operator.ask(GenerationRequestKind.RETIRE)
    assert "retired: 1, 2, 3" in done.reason
    assert operator.phases() == {4: "committed"}


def test_a_writer_that_comes_again_goes_on_where_it_was(log: KafkaLog, owner: Any) -> None:
    operator = Operator(log)
    operator.create(partitions=4)
    with ChangeWriter(log, SET, "w1") as writer:
        for position in range(100):
            writer.write(key_of("w1", position), None, position)
    with ChangeWriter(log, SET, "w1") as writer:
        assert writer.position == 99
        # The source sends some again.
        assert [writer.write(key_of("w1", position), None, position) for position in range(98, 102)] == [
            *(False, False, True, True),
        ]
        with pytest.raises(PositionError):
            writer.write(b"k", None, 101)
        # It reconnects, and sends again what may not be written yet.
        behind = writer.position + 1
        assert not any(writer.write(key_of("w1", position), None, position) for position in range(min(behind, 95), 102))
    with closing(ChangeReader(log, SET, "r")) as reader:
        in_order(read_all(reader, 102))


def test_a_writer_that_paused_is_fenced_and_goes_on_without_a_word_lost(log: KafkaLog, owner: Any) -> None:
    """Its thread stands still while a switch waits for it: the owner fences it and ends its streams."""
    operator = Operator(log)
    operator.create()
    with ChangeWriter(log, SET, "w1") as writer:
        for position in range(50):
            writer.write(key_of("w1", position), b"x", position)
        writer.flush()
        turn, is_frozen = writer._turn, [True]

        def frozen() -> None:
            if is_frozen[0]:
                time.sleep(0.05)
            else:
                turn()

        writer._turn = frozen  # type: ignore[method-assign]
        for position in range(50, 100):
            writer.write(key_of("w1", position), b"x", position)
        assert operator.resize(8).status is OutcomeStatus.DONE, "the switch does not wait for it"
        is_frozen[0] = False
        for position in range(100, 150):
            writer.write(key_of("w1", position), b"x", position)
        assert writer.flush() == 149
    with closing(ChangeReader(log, SET, "r")) as reader:
        found = read_all(reader, 150)
        in_order(found)
        assert sorted(position for positions in found.values() for position in positions) == list(range(150))


def test_whoever_is_replaced_is_told(log: KafkaLog, owner: Any) -> None:
    Operator(log).create(partitions=4)
    first = ChangeWriter(log, SET, "w1")
    assert first.position == -1
    second = ChangeWriter(log, SET, "w1")
    assert second.position == -1
    eventually(lambda: first._fatal is not None, "the first is told")
    with pytest.raises(WriterReplacedError, match="one process at a time"):
        first.write(b"k", None, 0)
    second.write(b"k", None, 10_000)
    second.flush()
    first.close()
    second.close()
    with pytest.raises(WriterError, match="closed"):
        second.write(b"k", None, 10_001)


def test_a_log_that_cannot_be_created_is_refused_with_the_reason(log: KafkaLog, owner: Any) -> None:
    operator = Operator(log)
    owner._effects._topics._replication_factor = 99
    done = operator.ask(GenerationRequestKind.CREATE, topic=operator.topic, partitions=4, streams=1)
    assert done.status is OutcomeStatus.REFUSED
    assert "99 copies need as many brokers, and Kafka at" in done.reason
    assert "restart `headgate serve generation` with HEADGATE_REPLICATION_FACTOR=1" in done.reason


def test_without_an_owner_or_a_log_a_writer_waits_and_then_says_why(log: KafkaLog) -> None:
    writer = ChangeWriter(log, SET, "w1", wait_seconds=1.0)
    with pytest.raises(WriterStalledError, match="serve generation"):
        writer.write(b"k", None, 0)
    writer.close()
