"""``headgate serve ingest`` on a broker: processes that share a topic are killed, and a change log is switched."""

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from headgate.app.exit_codes import ExitCode
from headgate.eventlog.kafka import KafkaLog
from headgate.generation import ChangeReader, ChangeWriter
from headgate.generation.changelog.shell.reader import ReadChange
from headgate.generation.changelog.shell.wire import ReservedHeaderError
from headgate.records.control import OutcomeStatus
from headgate_lab.embedded.broker import CALM, EmbeddedKafka
from support.access import grant, revoke_all
from support.kafka_cluster import ANSWER_SECONDS, Cluster
from support.served_process import ServedProcess
from support.topic_changes import add_partitions, make_topics
from support.waiting import END_SECONDS_MAX, eventually

from .test_change_log import SET, Operator

pytestmark = pytest.mark.integration

PARTITIONS = 4
KEYS = 30
HEADERS: list[tuple[str, str | bytes | None]] = [("trace", b"1"), ("trace", b"2"), ("empty", None)]


@pytest.fixture(scope="module")
def kafka_bootstrap(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Of a broker with an authorizer. Where there are no rules, everybody may do everything."""
    settings = CALM | {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
    }
    with EmbeddedKafka(tmp_path_factory.mktemp("kafka"), settings=settings) as kafka:
        yield kafka.bootstrap


class Ingest(ServedProcess):
    """A process; its log lines are JSON in a file."""

    def __init__(self, cluster: Cluster, folder: Path, name: str, *arguments: str) -> None:
        given = ["--bootstrap", cluster.bootstrap, "--cluster", cluster.cluster, "--http-port", "0"]
        super().__init__(folder / f"{name}.log", "ingest", *arguments, *given, "--log-format", "json")

    def get(self, path: str) -> tuple[int, str]:
        try:
            return self.answer(path)
        except OSError as error:
            return 0, str(error)

    def is_ready(self) -> bool:
        return self.get("/readyz")[0] == 200

    def end(self, code: ExitCode) -> str:
        assert self.process.wait(ANSWER_SECONDS) == code, self.log
        return self.log


@pytest.fixture
def ingest(cluster: Cluster, tmp_path: Path) -> Iterator[Callable[..., Ingest]]:
    running: list[Ingest] = []

    def start(name: str, *arguments: str) -> Ingest:
        running.append(Ingest(cluster, tmp_path, name, *arguments))
        return running[-1]

    yield start
    for each in running:
        each.kill()


@pytest.fixture
def topic(log: KafkaLog, cluster: Cluster) -> str:
    name = f"{cluster.cluster}-shop"
    make_topics(log.connection.admin, NewTopic(name, PARTITIONS, 1))
    return name


@pytest.fixture
def source(cluster: Cluster, topic: str) -> Iterator["Source"]:
    with closing(Source(cluster.bootstrap, topic)) as made:
        yield made


class Source:
    """A program that goes on writing numbered changes of a few keys, some of them deletions."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.written: dict[bytes, list[bytes | None]] = defaultdict(list)
        self.count = 0
        self._topic = topic
        self._producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._go_on, daemon=True)

    def write(self, changes: int) -> None:
        for _ in range(changes):
            key = b"k%d" % (self.count % KEYS)
            value = None if self.count % 11 == 0 else b"%d" % self.count
            self._producer.produce(self._topic, key=key, value=value, headers=HEADERS)
            self.written[key].append(value)
            self.count += 1
        assert self._producer.flush(60) == 0

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join(END_SECONDS_MAX)

    def close(self) -> None:
        self._producer.close()

    def _go_on(self) -> None:
        while not self._stopped.wait(0.05):
            self.write(20)


def read_until(reader: ChangeReader, found: list[ReadChange], count: Callable[[], int]) -> None:
    def is_read() -> bool:
        found.extend(reader.poll(0.1))
        return len(found) >= count()

    eventually(is_read, f"{count()} changes are on the log")


def by_key(found: list[ReadChange]) -> dict[bytes, list[bytes | None]]:
    values: dict[bytes, list[bytes | None]] = defaultdict(list)
    for change in found:
        assert change.key is not None
        values[change.key].append(change.value)
    return values


def test_two_processes_share_a_topic_and_one_is_killed_amid_a_switch(
    log: KafkaLog, owner: Any, topic: str, ingest: Callable[..., Ingest], source: Source
) -> None:
    operator = Operator(log)
    operator.create(partitions=64)
    one, two = (ingest(name, SET, "--topic", topic) for name in ("one", "two"))
    found: list[ReadChange] = []
    with closing(ChangeReader(log, SET, "r")) as reader:
        eventually(lambda: one.is_ready() and two.is_ready(), "both are ready")
        eventually(lambda: all("partition started" in each.log for each in (one, two)), "both have partitions")
        source.start()
        try:
            read_until(reader, found, lambda: 500)
            assert operator.resize(8).status is OutcomeStatus.DONE
            one.kill()
            read_until(reader, found, lambda: 1_000)
            one = ingest("one-again", SET, "--topic", topic)
            assert operator.resize(3).status is OutcomeStatus.DONE
            eventually(lambda: one.is_ready() and "partition started" in one.log, "it has partitions again")
            two.kill()
            assert operator.resize(16).status is OutcomeStatus.DONE
            so_far = source.count
            read_until(reader, found, lambda: so_far + 500)
        finally:
            source.stop()
        read_until(reader, found, lambda: source.count)
        eventually(lambda: f'headgate_ingest_behind_records{{topic="{topic}"}} 0' in one.get("/metrics")[1], "all read")
        found += reader.poll(1.0)
        assert reader.gaps == []
        assert reader.refused == 0
    assert by_key(found) == source.written, "each key's changes once, in their order"
    assert {change.headers for change in found} == {tuple(HEADERS)}
    assert {change.writer.rsplit(".", 1)[0] for change in found} == {f"ingest.{topic}.{n}" for n in range(PARTITIONS)}
    one.process.terminate()
    one.end(ExitCode.DONE)
    again = ingest("later", SET, "--topic", topic)
    eventually(again.is_ready, "one that was stopped is followed by another")
    source.write(100)
    with closing(ChangeReader(log, SET, "all")) as reader:
        found = []
        read_until(reader, found, lambda: source.count)
        assert by_key(found) == source.written


def test_a_record_that_cannot_be_a_change_ends_it_and_is_left_out_only_by_name(
    cluster: Cluster, log: KafkaLog, owner: Any, topic: str, ingest: Callable[..., Ingest]
) -> None:
    Operator(log).create()
    with Producer({"bootstrap.servers": cluster.bootstrap}) as producer:
        producer.produce(topic, partition=2, key=b"a", value=b"first")
        producer.produce(topic, partition=2, value=b"no key")
        producer.produce(topic, partition=2, key=b"a", value=b"second", headers=[("headgate-end", b"7")])
        producer.produce(topic, partition=2, key=b"", value=b"third")
        assert producer.flush(60) == 0
    said = ingest("one", SET, "--topic", topic).end(ExitCode.SOURCE)
    assert f"topic {topic}, partition 2, offset 1: the record has no key" in said
    assert f"--skip {topic}/2/1" in said
    skipping = ("--skip", f"{topic}/2/1")
    said = ingest("two", SET, "--topic", topic, *skipping).end(ExitCode.SOURCE)
    assert "partition 2, offset 2: a change must not have the header headgate-end" in said
    three = ingest("three", SET, "--topic", topic, *skipping, "--skip", f"{topic}/2/2")
    found: list[ReadChange] = []
    with closing(ChangeReader(log, SET, "r")) as reader:
        read_until(reader, found, lambda: 2)
    assert by_key(found) == {b"a": [b"first"], b"": [b"third"]}
    assert three.log.count("record skipped because of --skip") == 2


def test_a_record_that_the_change_log_does_not_take_ends_it_behind_all_before_it(
    log: KafkaLog, owner: Any, cluster: Cluster, topic: str, ingest: Callable[..., Ingest]
) -> None:
    """A record of 1 000 050 bytes is within Kafka's defaults; the topic of this change log was set to take less."""
    operator = Operator(log)
    settings = {"max.message.bytes": "500000"}
    make_topics(log.connection.admin, NewTopic(operator.topic, 8, 1, config=settings))
    operator.create(8)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "message.max.bytes": 1_048_576})
    for number in range(201):
        value = b"x" * 1_000_050 if number == 100 else b"%d" % number
        producer.produce(topic, key=b"a", value=value, partition=1)
    assert producer.flush(60) == 0
    said = ingest("one", SET, "--topic", topic).end(ExitCode.SOURCE)
    assert f"topic {topic}, partition 1, offset 100: " in said
    assert "and the change log takes 500000. Raise max.message.bytes" in said
    found: list[ReadChange] = []
    with closing(ChangeReader(log, SET, "r")) as reader:
        read_until(reader, found, lambda: 100)
        two = ingest("two", SET, "--topic", topic, "--skip", f"{topic}/1/100")
        read_until(reader, found, lambda: 200)
    assert by_key(found) == {b"a": [b"%d" % number for number in range(201) if number != 100]}
    eventually(two.is_ready, "it copies all other records")


def test_records_as_large_as_kafkas_defaults_allow_are_copied(
    log: KafkaLog, owner: Any, cluster: Cluster, topic: str, ingest: Callable[..., Ingest]
) -> None:
    Operator(log).create()
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "message.max.bytes": 1_048_576})
    producer.produce(topic, key=b"a", value=b"x" * 1_048_000, partition=1)
    producer.produce(topic, key=b"a", value=b"after", partition=1)
    assert producer.flush(60) == 0
    one = ingest("one", SET, "--topic", topic)
    found: list[ReadChange] = []
    with closing(ChangeReader(log, SET, "r")) as reader:
        read_until(reader, found, lambda: 2)
    assert [len(change.value or b"") for change in found] == [1_048_000, 5]
    eventually(one.is_ready, "it is ready")


def test_a_partition_that_cannot_be_written_makes_the_process_unready_until_it_can(
    log: KafkaLog, owner: Any, topic: str, source: Source, ingest: Callable[..., Ingest]
) -> None:
    operator = Operator(log)
    operator.create()
    one = ingest("one", SET, "--topic", topic)
    eventually(one.is_ready, "it copies")
    _let_be_read_only(log, operator.topic)
    source.write(200)

    def says_so() -> bool:
        status, said = one.get("/readyz")
        return (status, "partitions wait" in said) == (503, True)

    eventually(says_so, lambda: f"its probe fails: {one.get('/readyz')}")
    assert '"event": "partition waits"' in one.log
    revoke_all(log.connection.admin, operator.topic)
    found: list[ReadChange] = []
    with closing(ChangeReader(log, SET, "r")) as reader:
        read_until(reader, found, lambda: 200)
    eventually(one.is_ready, "it is ready again")
    assert by_key(found) == source.written


def _let_be_read_only(log: KafkaLog, topic: str) -> None:
    """Who has no right on a topic that has rules has none to write it. The broker ends transactions all the same.

    A broker that refuses records for their time or size refuses its own markers, too, and such a transaction stays
    open until it is started again (Kafka 4.3.1).
    """
    of = (ResourceType.TOPIC, topic, ResourcePatternType.LITERAL, "User:ANONYMOUS", "*")
    rules = [AclBinding(*of, each, AclPermissionType.ALLOW) for each in (AclOperation.READ, AclOperation.DESCRIBE)]
    grant(log.connection.admin, rules)


def test_what_does_not_exist_is_said(
    cluster: Cluster, log: KafkaLog, owner: Any, topic: str, ingest: Callable[..., Ingest]
) -> None:
    operator = Operator(log)
    operator.create()
    refused = {
        ingest("no-topic", SET, "--topic", "absent"): (ExitCode.SOURCE, "topic absent does not exist"),
        ingest("no-log", "absent", "--topic", topic): (ExitCode.NOT_FOUND, f"Known are: {SET}\n"),
        ingest("circle", SET, "--topic", operator.topic): (ExitCode.SETTING, f"of the change log '{SET}'"),
        ingest("control", SET, "--topic", f"{cluster.cluster}.sync"): (ExitCode.SETTING, "is a control topic"),
        ingest("misnamed", SET, "--topic", topic, "--skip", "3"): (ExitCode.SETTING, "TOPIC/PARTITION/OFFSET"),
        ingest("stranger", SET, "--topic", topic, "--skip", "x/0/1"): (ExitCode.SETTING, "not among those of --topic"),
        ingest("unknown", SET, "--topik", topic): (ExitCode.USAGE, "--topik"),
    }
    for process, (code, why) in refused.items():
        assert why in process.end(code)


def test_a_topic_with_more_partitions_is_refused_by_who_copies_it_and_by_who_starts_later(
    log: KafkaLog, owner: Any, topic: str, ingest: Callable[..., Ingest], source: Source
) -> None:
    Operator(log).create()
    source.write(200)
    one = ingest("one", SET, "--topic", topic)
    eventually(one.is_ready, "it copies")
    add_partitions(log.connection.admin, topic, PARTITIONS + 2)
    why = f"topic {topic} had {PARTITIONS} partitions when it was first copied and has {PARTITIONS + 2} now"
    assert why in one.end(ExitCode.SOURCE)
    assert why in ingest("two", SET, "--topic", topic).end(ExitCode.SOURCE)


def test_what_was_deleted_before_it_was_copied_is_an_error(
    log: KafkaLog, owner: Any, topic: str, ingest: Callable[..., Ingest], source: Source
) -> None:
    Operator(log).create()
    source.write(200)
    one = ingest("one", SET, "--topic", topic)
    found: list[ReadChange] = []
    with closing(ChangeReader(log, SET, "r")) as reader:
        read_until(reader, found, lambda: 200)
    one.process.terminate()
    one.end(ExitCode.DONE)
    source.write(200)
    _delete(log, topic)
    source.write(200)
    assert "has been deleted" in ingest("two", SET, "--topic", topic).end(ExitCode.SOURCE)


def _delete(log: KafkaLog, topic: str) -> None:
    ends = [TopicPartition(topic, number, -1) for number in range(PARTITIONS)]
    for future in log.connection.admin.delete_records(ends).values():
        future.result(ANSWER_SECONDS)


def test_a_writers_headers_pass_and_ours_are_refused(log: KafkaLog, owner: Any) -> None:
    Operator(log).create()
    with ChangeWriter(log, SET, "w") as writer:
        writer.write(b"k", b"v", 0, [("a", b"1"), ("a", None)])
        with pytest.raises(ReservedHeaderError, match="headgate-position"):
            writer.write(b"k", b"v", 1, [("headgate-position", b"9")])
    with closing(ChangeReader(log, SET, "r")) as reader:
        found: list[ReadChange] = []
        read_until(reader, found, lambda: 1)
    assert found[0].headers == (("a", b"1"), ("a", None))
