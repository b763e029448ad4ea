"""Timestamp sets on a real broker: owners killed between rows, writers whose clocks differ, readers that hold back."""

import json
import os
import signal
import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final, Protocol

import pytest
from typer.testing import CliRunner, Result

from headgate.app.exit_codes import ExitCode
from headgate.cli.main import app
from headgate.eventlog.kafka import KafkaLog
from headgate.eventlog.sharding import shard_of
from headgate.generation import TimestampReader, TimestampStreams
from headgate.generation.core.timestamp_records import TimestampRecords
from headgate.generation.core.tokens import token_of_key
from headgate.generation.shell.tail import GenerationTail
from headgate.generation.timestamps.core.rings import topology_for
from headgate.generation.timestamps.core.timeline import (
    GenerationError,
    GenerationUnreadError,
    NoGenerationError,
    WriteTooNewError,
    WriteTooOldError,
)
from headgate.generation.timestamps.core.timestamp_views import published_of
from headgate.records.base import Fact
from headgate.records.control import OutcomeStatus, RequestSettled
from headgate.records.generation import GenerationOutcomeKey
from headgate.records.timestamps import (
    DescriptionKey,
    RingNode,
    StreamsKey,
    TimestampsRequested,
    TimestampsRequestKey,
    TimestampsRequestKind,
)
from support.kafka_cluster import ANSWER_SECONDS, Cluster
from support.served_process import ServedProcess
from support.waiting import eventually

pytestmark = pytest.mark.integration

SET = "clocks"
SMALL = (RingNode("a", 4, 12, (-(1 << 62), 0, 1 << 62)),)
JOINED = (*SMALL, RingNode("b", 2, 12, (1 << 61,)))
LARGE = tuple(
    RingNode(f"n{node}", 16, 12, tuple((node * 1024 + vnode) * (1 << 49) - (1 << 62) for vnode in range(1024)))
    for node in range(16)
)
LARGE_STREAMS = 16 * 1024 * 16
"""As many as there may be: 53 rows of each kind, a turn each."""
DELAY_MS = 2_000
ROWS_UNTIL_KILLED: Final = 3
TESTS: Final = Path(__file__).parents[2]


class Asker:
    def __init__(self, log: KafkaLog) -> None:
        self.tail = GenerationTail(log, SET, "asker")

    def say(self, kind: TimestampsRequestKind, nodes: tuple[RingNode, ...] = (), **fields: int) -> GenerationOutcomeKey:
        key = TimestampsRequestKey(SET, uuid.uuid4().hex)
        given = {"based_on_ms": 0, "ring_delay_ms": DELAY_MS, "kept_ms": 1, **fields}
        self.tail.say(Fact(key, TimestampsRequested(kind, nodes, requested_by="test", requested_ms=0, **given)))
        return GenerationOutcomeKey(SET, key.request)

    def ask(self, kind: TimestampsRequestKind, nodes: tuple[RingNode, ...] = (), **fields: int) -> RequestSettled:
        return self.settled(self.say(kind, nodes, **fields))

    def settled(self, outcome: GenerationOutcomeKey) -> RequestSettled:
        def is_settled() -> bool:
            self.tail.follow(0.1)
            found = self.tail.state.outcomes.get(outcome)
            return found is not None and found.status is not OutcomeStatus.ACCEPTED

        eventually(is_settled, "an outcome")
        return self.tail.state.outcomes[outcome]

    @property
    def records(self) -> TimestampRecords:
        self.tail.read_to_end()
        return self.tail.state.timestamps

    @property
    def timestamps(self) -> list[int]:
        return [each.timestamp_ms for each in self.records.sets[SET].generations]


@pytest.fixture
def asker(log: KafkaLog) -> Iterator[Asker]:
    found = Asker(log)
    yield found
    found.tail.close()


class Owner(ServedProcess):
    """A process ``headgate serve generation``. With ``killed_at``, the first that gets there dies."""

    def __init__(self, cluster: Cluster, folder: Path, name: str, killed_at: tuple[str, int] | None) -> None:
        given = ["--bootstrap", cluster.bootstrap, "--cluster", cluster.cluster, "--http-port", "0"]
        module = ["headgate"]
        if killed_at is not None:
            key_class, nth = killed_at
            module = ["support.killed_owner", str(folder / "killed"), key_class, str(nth)]
        super().__init__(
            folder / f"{name}.log",
            *("generation", *given, "--log-format", "json"),
            module=module,
            environment={**os.environ, "PYTHONPATH": f"{TESTS}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"},
        )

    @property
    def owns(self) -> set[int]:
        """Shards, as the last lines of its log say."""
        assert self.process.poll() is None, self.log
        lines = [line for line in self.lines() if line.get("event") == "role"]
        states = {line["shard"]: line["state"] for line in lines}
        return {shard for shard, state in states.items() if state == "serving"}


class StartOwner(Protocol):
    def __call__(self, name: str, killed_at: tuple[str, int] | None = None) -> Owner: ...


@pytest.fixture
def owners(cluster: Cluster, log: KafkaLog, tmp_path: Path) -> Iterator[StartOwner]:
    running: list[Owner] = []

    def start(name: str, killed_at: tuple[str, int] | None = None) -> Owner:
        running.append(Owner(cluster, tmp_path, name, killed_at))
        return running[-1]

    yield start
    for owner in running:
        owner.kill()


def now_us() -> int:
    return time.time_ns() // 1_000


def check_whole(records: TimestampRecords) -> None:
    for seen in published_of(records, SET):
        whole = topology_for(SET, seen.timestamp_ms, records.rings[SET, seen.timestamp_ms].nodes)
        assert seen.streams == whole.streams


@pytest.mark.parametrize("table", ["descriptions", "streams"])
def test_an_owner_that_is_killed_between_the_rows_is_gone_on_with(
    log: KafkaLog, asker: Asker, owners: StartOwner, table: str
) -> None:
    row = {"descriptions": DescriptionKey, "streams": StreamsKey}[table].__name__
    both = [owners(name, (row, ROWS_UNTIL_KILLED + 1)) for name in ("one", "other")]
    shard = shard_of(SET, log.shards)
    eventually(lambda: [len(each.owns) for each in both] == [log.shards // 2] * 2, "each owns half of the shards")
    first, second = sorted(both, key=lambda each: shard not in each.owns)
    with TimestampStreams(log, SET) as streams, closing(TimestampReader(log, SET, "r")) as reader:
        second.process.send_signal(signal.SIGSTOP)  # it must not take over before what is half done has been looked at
        outcome = asker.say(TimestampsRequestKind.CREATE, LARGE, kept_ms=0)
        eventually(lambda: first.process.poll() == -signal.SIGKILL, "killed between the rows")
        (timestamp_ms,) = asker.timestamps
        due = asker.records.sets[SET].generations[0].chunks
        assert due == LARGE_STREAMS // 5_000 + 1
        assert len(getattr(asker.records, table)[SET, timestamp_ms]) == ROWS_UNTIL_KILLED
        assert reader.generations() == (), "no timestamp is seen yet"
        if table == "descriptions":
            eventually(lambda: streams.generations == {timestamp_ms: False}, "the writer knows that there is one")
            with pytest.raises(GenerationUnreadError):
                streams.stream_of(7, now_us())
        second.process.send_signal(signal.SIGCONT)
        assert asker.settled(outcome).status is OutcomeStatus.DONE
        check_whole(asker.records)
        (seen,) = reader.generations()
        assert len(seen.streams) == LARGE_STREAMS
        streams.wait(ANSWER_SECONDS)
        whole = topology_for(SET, timestamp_ms, LARGE)
        assert streams.stream_of(7, now_us()) == whole.stream_of(7)
        assert whole.streams == seen.streams
        assert streams.late == ()


@pytest.mark.usefixtures("owner")
def test_writes_of_clocks_that_differ_get_the_stream_of_their_time_or_none(log: KafkaLog, asker: Asker) -> None:
    assert asker.ask(TimestampsRequestKind.CREATE, SMALL).status is OutcomeStatus.DONE
    (one,) = asker.timestamps
    clock: list[int] = []
    """What the writer's clock shows, once it stands still."""
    with TimestampStreams(log, SET, now_ms=lambda: clock[-1] if clock else now_us() // 1_000) as streams:
        streams.wait(ANSWER_SECONDS)
        first = topology_for(SET, one, SMALL)
        assert streams.stream_of(b"key", now_us()) == first.stream_of(token_of_key(b"key"))
        assert streams.stream_of(7, now_us()) == first.stream_of(7)
        with pytest.raises(WriteTooNewError):
            streams.stream_of(7, now_us() + 10_000_000)
        with pytest.raises(NoGenerationError):
            streams.stream_of(7, one * 1_000 - 1)
        assert asker.ask(TimestampsRequestKind.SWITCH, JOINED, based_on_ms=one).status is OutcomeStatus.DONE
        two = asker.timestamps[-1]
        assert two > one
        eventually(lambda: streams.generations.get(two, False), "the writer has read it")
        # This clock is behind by a minute, that of whoever has written the change is not: too far ahead of here.
        clock.append(two - 60_000)
        with pytest.raises(WriteTooNewError):
            streams.stream_of(7, two * 1_000)
        # Ahead by the time to the switch: a write of the next generation's time goes to its stream already.
        clock.append(two)
        assert streams.stream_of(7, two * 1_000) == topology_for(SET, two, JOINED).stream_of(7)
        assert streams.stream_of(7, two * 1_000 - 1) == first.stream_of(7), "a leeway before, any generation"
        clock.append(two + 6_000)
        with pytest.raises(WriteTooOldError):
            streams.stream_of(7, two * 1_000 - 1)
        assert streams.late == ()


@pytest.mark.usefixtures("owner")
def test_writes_of_a_generation_that_cannot_be_read_are_refused_until_it_can(log: KafkaLog, asker: Asker) -> None:
    asker.ask(TimestampsRequestKind.CREATE, SMALL)
    (one,) = asker.timestamps
    lost = DescriptionKey(SET, one, 0)
    asker.tail.say(Fact(lost, None))
    with TimestampStreams(log, SET) as streams:
        eventually(lambda: streams.generations == {one: False}, "only its timestamp is known")
        with pytest.raises(GenerationError, match=f"{lost.text()} does not exist on the topic"):
            streams.wait(0.1)
        with pytest.raises(GenerationUnreadError):
            streams.stream_of(7, now_us())
        done = asker.ask(TimestampsRequestKind.REPAIR)
        assert f"1 rows were missing or wrong and are written again, the first are: {lost.text()}" in done.reason
        streams.wait(ANSWER_SECONDS)
        assert streams.stream_of(7, now_us()) == topology_for(SET, one, SMALL).stream_of(7)
    assert "nothing is wrong" in asker.ask(TimestampsRequestKind.REPAIR).reason
    assert asker.timestamps == [one], "no generation was made for it"


@pytest.mark.usefixtures("owner")
def test_a_generation_is_removed_behind_its_last_reader(log: KafkaLog, asker: Asker) -> None:
    asker.ask(TimestampsRequestKind.CREATE, SMALL)
    (one,) = asker.timestamps
    with closing(TimestampReader(log, SET, "r")) as reader:
        with pytest.raises(GenerationError, match="still operates"):
            reader.left(one)
        asker.ask(TimestampsRequestKind.SWITCH, JOINED)
        two = asker.timestamps[-1]
        eventually(lambda: len(reader.generations(0.1)) == 2, "both are seen")
        assert [(each.timestamp_ms, each.end_ms) for each in reader.generations()] == [(one, two), (two, None)]
        over_ms = reader.generations()[0].over_ms
        assert over_ms == two + DELAY_MS + 5_000
        eventually(lambda: time.time_ns() // 1_000_000 > over_ms, "no clock is in it any more")
        assert f"{one}: reader r" in asker.ask(TimestampsRequestKind.CLEAN).reason
        assert asker.timestamps == [one, two]
        reader.left(one)
        eventually(lambda: asker.timestamps == [two], "it is removed")
        eventually(lambda: [each.timestamp_ms for each in reader.generations(0.1)] == [two], "the other is left")
    records = asker.records
    assert set(records.published) == set(records.rings) == set(records.descriptions) == set(records.streams)
    with closing(TimestampReader(log, SET, "r")) as reader:
        assert reader.left_ms == one
        reader.forget()
    assert not asker.records.readers


@pytest.mark.usefixtures("owner")
def test_checks_at_the_same_time_make_one_generation(asker: Asker) -> None:
    asker.ask(TimestampsRequestKind.CREATE, SMALL)
    outcomes = [asker.say(TimestampsRequestKind.REPAIR, JOINED) for _ in range(8)]
    assert {asker.settled(outcome).status for outcome in outcomes} == {OutcomeStatus.DONE}
    assert len(asker.timestamps) == 2
    check_whole(asker.records)


def run(cluster: Cluster, command: str, *options: str) -> Result:
    where = ("--bootstrap", cluster.bootstrap, "--cluster", cluster.cluster)
    return CliRunner().invoke(app, ["generation", "timestamps", *command.split(), SET, *options, *where])


def answer(cluster: Cluster, command: str, *options: str) -> Any:
    result = run(cluster, command, "-o", "json", *options)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.usefixtures("owner")
def test_the_commands_from_creation_to_removal(cluster: Cluster, log: KafkaLog, tmp_path: Path) -> None:
    assert run(cluster, "list").exit_code == ExitCode.NOT_FOUND
    assert run(cluster, "create").exit_code == ExitCode.SETTING
    made = ("--vnodes", "4", "--shards", "2", "--ring-delay", "1", "--kept", "0.001")
    assert answer(cluster, "create", "--nodes", "2", *made)["status"] == "done"
    assert run(cluster, "create", *made).exit_code == ExitCode.REQUEST_REFUSED, "another ring"
    # A reader holds the first generation, which otherwise would be removed as soon as no clock is in it any more.
    with closing(TimestampReader(log, SET, "slow")):
        pass
    (one,) = answer(cluster, "list")
    assert (one["state"], one["ranges"], one["streams"], one["until"]) == ("operating", 8, 16, None)
    # A dry run changes nothing.
    joins = ("--add-node", "new", "--vnodes", "3", "--shards", "5")
    assert answer(cluster, "update", *joins, "--dry-run")["would"] == "start a generation of 11 ranges and 31 streams"
    assert answer(cluster, "update", *joins)["status"] == "done"
    first, second = answer(cluster, "list")
    assert (first["timestamp"], first["until"], second["streams"]) == (one["timestamp"], second["from"], 31)
    # The ring as it is printed is a ring as it is read; the generation is for it already.
    ring = tmp_path / "ring.yaml"
    ring.write_text(run(cluster, "ring").stdout)
    would = answer(cluster, "repair", "--ring", str(ring), "--dry-run")["would"]
    assert would == "start no generation: the latest one is for this ring (every row exists)"
    assert "nothing is wrong" in answer(cluster, "repair", "--ring", str(ring))["reason"]
    # Where a key's writes go is where the generation's streams are.
    streams = {row["stream"]: row for row in answer(cluster, "show")}
    assert len(streams) == 31
    found = answer(cluster, "lookup", "key")
    assert [row["generation"] for row in found] == [first["timestamp"], second["timestamp"]]
    assert streams[found[1]["stream"]]["range_end"] == found[1]["range_end"]
    # What holds a generation is said, and what nobody needs goes.
    assert answer(cluster, "list")[0]["held_by"][-1] == "reader slow"
    assert [row["reader"] for row in answer(cluster, "reader list")] == ["slow"]
    assert run(cluster, "reader delete", "quick", "--yes").exit_code == ExitCode.NOT_FOUND
    assert run(cluster, "reader delete", "slow").exit_code == ExitCode.NOT_CONFIRMED
    assert run(cluster, "reader delete", "slow", "--yes").exit_code == 0
    eventually(lambda: len(answer(cluster, "list")) == 1, "the first is removed by itself")
    dry = answer(cluster, "gc", "--dry-run")
    assert (dry["status"], dry["due"], dry["held_by"]) == ("would be done", [], {})
    assert "removed: none" in answer(cluster, "gc", "--yes")["reason"]
    assert run(cluster, "show", "--generation", str(first["timestamp"])).exit_code == ExitCode.NOT_FOUND
    assert run(cluster, "update", "--remove-node", "nobody").exit_code == ExitCode.NOT_FOUND
    assert answer(cluster, "update", "--remove-node", "node1")["status"] == "done"
    assert answer(cluster, "list")[-1]["ranges"] == 7
