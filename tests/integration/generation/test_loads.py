"""Loads that writers report, as `headgate generation rebalance` and autoscaling see and use them, on a real broker."""

import json
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Self

import pytest
from typer.testing import CliRunner, Result

from headgate.app.exit_codes import ExitCode
from headgate.cli.main import app
from headgate.eventlog.kafka import KafkaLog
from headgate.generation import ChangeReader, ChangeWriter
from headgate.generation.core.state import current_of
from headgate.generation.core.tokens import token_of_key
from headgate.records.base import Fact
from headgate.records.control import OutcomeStatus
from headgate.records.generation import StreamLoad, WriterKey, WriterReported
from support.kafka_cluster import Cluster
from support.waiting import eventually

from .test_change_log import SET, Operator, read_all

pytestmark = pytest.mark.integration

REPORT_SECONDS = 0.5
HOT = b"hot"


@pytest.fixture(autouse=True)
def reports_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headgate.generation.changelog.core.life.REPORT_SECONDS", REPORT_SECONDS)
    monkeypatch.setattr("headgate.generation.changelog.core.automatic.LOOK_SECONDS", REPORT_SECONDS)


@pytest.fixture
def writers(log: KafkaLog, owner: object) -> Iterator[list[ChangeWriter]]:
    Operator(log).create(partitions=8)
    opened = [ChangeWriter(log, SET, name) for name in ("w1", "w2")]
    assert [writer.position for writer in opened] == [-1, -1]
    yield opened
    for writer in opened:
        writer.close()


def plan(cluster: Cluster, *options: str) -> Result:
    return generation(cluster, "rebalance", *options, "--dry-run")


def generation(cluster: Cluster, command: str, *options: str) -> Result:
    where = ("--bootstrap", cluster.bootstrap, "--cluster", cluster.cluster)
    return CliRunner().invoke(app, ["generation", *command.split(), SET, *options, *where])


def has_loads(operator: Operator, writer: str, epoch: int) -> bool:
    operator.tail.read_to_end()
    reports = operator.tail.state.writers.get(SET, {})
    return any(
        report.epoch == epoch and any(load.changes for load in report.loads)
        for (name, _), report in reports.items()
        if name == writer
    )


class Feeder:
    """Writes all the time: three changes of four have one key."""

    def __init__(self, writers: Sequence[ChangeWriter]) -> None:
        self._writers = writers
        self.pause_seconds = 0.01
        self.written = 0
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._is_over.wait(self.pause_seconds):
            position = self.written
            for number, writer in enumerate(self._writers):
                writer.write(self.key(number, position), b"x", position)
            self.written += 1

    def key(self, writer: int, position: int) -> bytes:
        return HOT + b"%d" % writer if position % 4 else b"%d-%d" % (writer, position % 20)


def test_a_plan_is_made_of_what_writers_report(log: KafkaLog, cluster: Cluster, writers: list[ChangeWriter]) -> None:
    operator = Operator(log)
    token = token_of_key(HOT + b"0")
    with Feeder(writers[:1]):
        eventually(lambda: has_loads(operator, "w1", 1), "it reports")
        words = (
            *("writer w1: ", "writer w2: 0.0 changes/s"),
            *(f"cut behind {token - 1}, {token}", "would close 1 stream and open 3"),
        )

        def is_planned() -> bool:
            shown = plan(cluster, "--split-above", "1")
            return shown.exit_code == 0 and {word for word in words if word in shown.output} == {*words}

        # A report is of half a second, in which a busy machine may write next to nothing.
        eventually(
            is_planned, lambda: f"both report, and the hot key is seen: {plan(cluster, '--split-above', '1').output}"
        )
        eventually(lambda: "generation 2 is committed" in generation(cluster, "rebalance", "--split-above", "1").output)
    operator.tail.read_to_end()
    alone = operator.tail.state.map_of(SET, 2).stream_of(token)
    assert (alone.start, alone.end) == (token - 1, token)


def test_what_is_not_known_is_said_and_a_report_that_cannot_be_true_is_refused(
    log: KafkaLog, cluster: Cluster, owner: object
) -> None:
    operator = Operator(log)
    operator.create(partitions=4, streams=2)
    nobody = plan(cluster, "--split-above", "10")
    assert nobody.exit_code == ExitCode.NOT_REPORTED, "the change log exists"
    assert "no writer has reported" in nobody.output
    assert "--measure-log 5" in nobody.output
    measured = plan(cluster, "--split-above", "10", "--merge-below", "5", "--measure-log", "0.5")
    assert "would close 2 streams and open 1" in measured.output
    first = operator.tail.state.map_of(SET, 1).streams[0]
    with ChangeWriter(log, SET, "w1") as writer:
        assert writer.position == -1
        eventually(lambda: not plan(cluster, "--split-above", "10").exit_code, "it reports that it writes nothing")
        operator.tail.read_to_end()
        (admitted,) = operator.tail.state.sets[SET].writers
    now_ms = time.time_ns() // 1_000_000
    # A writer that is admitted by its word, and lies.
    for loads in ((), (StreamLoad(str(first.id), -7, 1.0, ()),)):
        key = WriterKey(SET, "w1", admitted.life + 1)
        operator.tail.say(Fact(key, WriterReported(1, 0, -1, False, loads, now_ms)))
    eventually(lambda: _is_refused(cluster), "the owner has admitted it")
    contradicting = plan(cluster, "--split-above", "10", "--merge-below", "6")
    assert contradicting.exit_code == ExitCode.SETTING
    assert "at most half" in contradicting.output


def _is_refused(cluster: Cluster) -> bool:
    return "its report is refused, so nothing is merged: stream" in plan(cluster, "--split-above", "10").output


def test_a_hot_range_is_split_by_itself_and_merged_when_it_is_cold(
    log: KafkaLog, cluster: Cluster, writers: list[ChangeWriter]
) -> None:
    operator = Operator(log)
    assert json.loads(generation(cluster, "autoscale show", "-o", "json").output)["state"] == "off"
    limits = ("--split-above", "10", "--merge-below", "5", "--streams-max", "4", "--settle", "1", "--cool-down", "1")
    assert "would set" in generation(cluster, "autoscale enable", *limits, "--dry-run").output
    done = generation(cluster, "autoscale enable", *limits)
    assert "autoscaling is on" in done.output, done.output

    def streams() -> int:
        operator.tail.read_to_end()
        record = operator.tail.state.sets[SET]
        current = current_of(record)
        return 0 if current is None else len(operator.tail.state.map_of(SET, current.epoch).streams)

    with Feeder(writers) as feeder:
        eventually(lambda: streams() >= 3, "the hot range is split")
        feeder.pause_seconds = 1.0
        eventually(lambda: streams() == 1, "what is cold is merged")
        shown = json.loads(generation(cluster, "autoscale show", "-o", "json").output)
        assert (shown["state"], shown["split_above_per_second"], shown["streams_max"]) == ("on", 10.0, 4)
        assert operator.resize(2).status is OutcomeStatus.DONE
        shown = json.loads(generation(cluster, "autoscale show", "-o", "json").output)
        assert shown["state"].startswith("suspended: generation "), "an operator has the last word"
    done = generation(cluster, "autoscale disable")
    assert "autoscaling is off" in done.output, done.output
    for writer in writers:
        writer.flush()
    expected: dict[bytes, list[int]] = defaultdict(list)
    for position in range(feeder.written):
        for number in range(len(writers)):
            expected[feeder.key(number, position)].append(position)
    with closing(ChangeReader(log, SET, "r")) as reader:
        found = read_all(reader, len(writers) * feeder.written)
        assert reader.gaps == []
    assert found == expected, "each key's changes once, in their order"


def test_without_an_owner_a_command_says_so(log: KafkaLog, cluster: Cluster) -> None:
    told = generation(cluster, "create", "--partitions", "4", "--timeout", "1")
    assert told.exit_code == ExitCode.REQUEST_TIMED_OUT
    assert "Start an owner with `headgate serve generation`" in told.output
