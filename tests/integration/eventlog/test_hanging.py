"""A transaction whose end a broker has lost: decided, written down as done, and no marker in the partition.

The broker's log is brought into that state by hand (support/lost_ends.py).
"""

import itertools
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress

import pytest
from confluent_kafka import Producer

from headgate.coordinator.core.kind import COORDINATOR_KIND
from headgate.eventlog import proofs
from headgate.eventlog.decisions import Decided, Decision, decisions_of
from headgate.eventlog.kafka import KafkaLog, open_log
from headgate.eventlog.log import CommitRefusedError, FencedError, LogError, Partition, Placed, TransactionalWriter
from headgate.eventlog.replay import ReplayStalledError, read_on_to
from headgate.eventlog.topics import create_topics, topic_name
from headgate.provisioning.time_scale import scaled_seconds
from headgate.records.base import Fact
from headgate.records.keys import FeedProgressKey
from headgate.runtime.machine import Now
from headgate.runtime.role import Role, RoleState
from headgate_lab.embedded.broker import EmbeddedKafka
from headgate_lab.worlds.kernel import role_settings
from support.eventlog_contract import DISPATCH_0, ended, facts, read_all, tombstone
from support.kafka_cluster import ANSWER_SECONDS, Cluster
from support.lost_ends import PATIENT, lose_markers
from support.toy_role import TOY, ToyState
from support.waiting import eventually

pytestmark = pytest.mark.integration

OWNER = "owner"
CHECKPOINT_0 = Partition("checkpoint", 0)
DEADLINE_SECONDS = scaled_seconds(120)

_numbers = itertools.count()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedKafka]:
    """One of our own, since it is killed and its files are changed."""
    with EmbeddedKafka(tmp_path_factory.mktemp("hanging") / "kafka", settings=PATIENT) as kafka:
        yield kafka


class Lost:
    """Clusters whose owners ended a transaction that has lost its marker: all with one kill of the broker."""

    def __init__(self, broker: EmbeddedKafka) -> None:
        self._broker = broker
        self.logs: dict[str, KafkaLog] = {}
        self.offsets: dict[str, int] = {}
        self.alive: TransactionalWriter | None = None
        """An owner that lives on."""

    def end(self, name: str, *, commit: bool, before: bool = False, beside: Sequence[Placed] = ()) -> None:
        log = self.logs[name] = opened(self._broker)
        with closing(successor(log)) as owner:
            if before:
                owner.commit([ended("before")])
            if commit:
                self.offsets[name], *_ = owner.commit([ended("hidden"), *beside])
            else:
                owner._withdraw([ended("aborted")])  # type: ignore[attr-defined]

    def live_on(self, name: str) -> None:
        log = self.logs[name] = opened(self._broker)
        self.alive = successor(log)
        (self.offsets[name],) = self.alive.commit([ended("hidden")])
        own_id = f"{log.cluster}.{OWNER}"
        eventually(lambda: decisions_of(log.connection, own_id).is_over, "the broker is done with it")

    def lose_markers(self) -> None:
        """Kill the broker, cut the last batch off each dispatch/0, which is to be a marker, and start it again."""
        for name, log in self.logs.items():
            # A commit is answered before its markers are written, and these before all is said to be done: init waits.
            if name != "alive":
                successor(log).close()
        names = (topic_name(log.cluster, "dispatch") for log in self.logs.values())
        lose_markers(self._broker, [Partition(name, 0) for name in names])


def opened(broker: EmbeddedKafka) -> KafkaLog:
    cluster = Cluster(broker.bootstrap, f"hang{next(_numbers)}")
    create_topics(cluster)
    return open_log(cluster)


@pytest.fixture(scope="module")
def lost(broker: EmbeddedKafka) -> Iterator[Lost]:
    """One cluster for each test that wants one."""
    made = Lost(broker)
    made.end("committed", commit=True, before=True)
    made.end("aborted", commit=False, before=True)
    for name in ("aborted elsewhere", "committed elsewhere", "one of two", "fenced", "role"):
        made.end(name, commit=True)
    made.end("both", commit=True, beside=[progress("both")])
    made.live_on("alive")
    made.lose_markers()
    yield made
    if made.alive is not None:
        made.alive.close()
    for log in made.logs.values():
        log.close()


@pytest.fixture
def log(broker: EmbeddedKafka) -> Iterator[KafkaLog]:
    with closing(opened(broker)) as log:
        yield log


def is_pinned(log: KafkaLog) -> int | None:
    """Where readers of committed records stand still in dispatch/0; None if they come to its end within moments."""
    with closing(log.reader({DISPATCH_0: 0})) as reader:
        try:
            list(read_on_to(reader, log.end_offsets([DISPATCH_0]), stall_seconds_max=2.0))
        except ReplayStalledError:
            return reader.positions()[DISPATCH_0]
    return None


def progress(feed: str) -> Placed:
    return Placed(CHECKPOINT_0, Fact(FeedProgressKey(feed), None))


def serve(role: Role[ToyState]) -> None:
    deadline = time.monotonic() + DEADLINE_SECONDS
    while role.status.state is not RoleState.SERVING:
        assert time.monotonic() < deadline, role.status
        role.wait(min(role.turn(Now(time.monotonic(), time.time_ns() // 1_000_000)), 0.05))


def successor(log: KafkaLog) -> TransactionalWriter:
    writer = log.transactional_writer(OWNER)
    writer.init()
    return writer


def test_a_successor_commits_what_was_committed(lost: Lost) -> None:
    log = lost.logs["committed"]
    with closing(successor(log)) as writer:
        # A reader that has had nothing for two seconds may also be one that has only just begun.
        eventually(lambda: is_pinned(log) == lost.offsets["committed"], "init ends nothing")
        assert writer.end_hanging([tombstone("nobody")])
        assert facts(read_all(log, [DISPATCH_0])) == [each.fact for each in map(ended, ("before", "hidden"))] + [
            tombstone("nobody").fact
        ]
        writer.commit([ended("after")])


def test_a_successor_aborts_what_was_aborted(lost: Lost) -> None:
    log = lost.logs["aborted"]
    with closing(successor(log)) as writer:
        offset = is_pinned(log)
        assert offset is not None
        assert writer.end_hanging([tombstone("nobody")])
        assert facts(read_all(log, [DISPATCH_0])) == [ended("before").fact]
        writer.commit([ended("after")])


@pytest.mark.parametrize("name", ["aborted elsewhere", "committed elsewhere"])
def test_what_is_lost_is_ended_as_it_was_decided_whatever_a_later_transaction_did_elsewhere(
    lost: Lost, name: str
) -> None:
    """An owner whose broker is killed has its next heartbeat under way: its successor aborts that."""
    log = lost.logs[name]
    with closing(successor(log)) as second:
        if name == "aborted elsewhere":
            second._withdraw([progress("elsewhere")])  # type: ignore[attr-defined]
        else:
            second.commit([progress("elsewhere")])
    with closing(successor(log)) as third:
        assert third.end_hanging([tombstone("nobody")])
    assert facts(read_all(log, [DISPATCH_0])) == [ended("hidden").fact, tombstone("nobody").fact]


def test_nothing_is_ended_where_a_later_transaction_beside_was_decided_otherwise(lost: Lost) -> None:
    log = lost.logs["both"]
    with closing(successor(log)) as second:
        second._withdraw([progress("both")])  # type: ignore[attr-defined]
        assert not second.end_hanging([tombstone("nobody")])
    assert is_pinned(log) == 0
    assert log.end_offsets([DISPATCH_0]) == {DISPATCH_0: 1}, "nothing was written"


def test_what_hides_nothing_of_the_owner_is_not_written_to(lost: Lost) -> None:
    log = lost.logs["one of two"]
    with closing(successor(log)) as writer:
        before = log.end_offsets([CHECKPOINT_0])
        assert writer.end_hanging([tombstone("nobody"), progress("nobody")])
    assert log.end_offsets([CHECKPOINT_0]) == before
    assert facts(read_all(log, [DISPATCH_0])) == [ended("hidden").fact, tombstone("nobody").fact]


def test_a_fenced_successor_ends_nothing(lost: Lost) -> None:
    log = lost.logs["fenced"]
    with closing(successor(log)) as late, closing(successor(log)) as latest:
        with pytest.raises(FencedError):
            late.end_hanging([tombstone("nobody")])
        assert is_pinned(log) == 0
        assert latest.end_hanging([tombstone("nobody")])


def test_an_owner_that_lives_on_writes_elsewhere_but_not_behind_it(lost: Lost) -> None:
    """An abort of its next transaction would undo the one that was confirmed."""
    log, owner = lost.logs["alive"], lost.alive
    assert owner is not None
    owner.commit([progress("elsewhere")])
    end = log.end_offsets([DISPATCH_0])
    with pytest.raises(CommitRefusedError, match=r"lost the end of the last one in .*dispatch/0"):
        owner.commit([progress("both"), ended("after")])
    assert log.end_offsets([DISPATCH_0]) == end, "no transaction began there"
    assert is_pinned(log) == lost.offsets["alive"]


def test_what_readers_have_got_is_not_asked_for(log: KafkaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(successor(log)) as owner:
        owner.commit([ended("a"), ended("b")])
        with closing(log.reader({DISPATCH_0: 0})) as reader:
            list(read_on_to(reader, log.end_offsets([DISPATCH_0])))
            owner.seen(reader.positions())
        monkeypatch.setattr(proofs, "offsets_of", None)
        owner.commit([ended("c")])
        with pytest.raises(TypeError):
            owner.commit([ended("d")])


def test_a_neighbours_open_transaction_holds_nobody_up(log: KafkaLog, monkeypatch: pytest.MonkeyPatch) -> None:
    """An owner that is killed leaves one open on announce, where the owners of all shards meet."""
    monkeypatch.setattr(proofs, "PROOF_SECONDS_MAX", 0.0)
    neighbour = log.connection.client(Producer, transactional_id=f"{log.cluster}.neighbour")
    neighbour.init_transactions(ANSWER_SECONDS)
    neighbour.begin_transaction()
    neighbour.produce(topic_name(log.cluster, "dispatch"), partition=0, key=b"k", headers=[("writer", b"neighbour")])
    assert neighbour.flush(ANSWER_SECONDS) == 0
    with closing(successor(log)) as owner:
        owner.commit([ended("a")])
        owner.commit([ended("b")])
        monkeypatch.setattr(proofs, "PROOF_SECONDS_MAX", DEADLINE_SECONDS)
        owner.commit([ended("c")])  # a neighbour that is known is not waited for
        assert is_pinned(log) == 0
        neighbour.abort_transaction(ANSWER_SECONDS)
        owner.commit([ended("d")])
    assert facts(read_all(log, [DISPATCH_0])) == [ended(each).fact for each in "abcd"]


def test_a_role_begins_its_term_over_a_hanging_transaction(lost: Lost) -> None:
    log = lost.logs["role"]
    settings = role_settings(COORDINATOR_KIND, "one", transactional_id=OWNER)
    with closing(Role(settings, TOY, log, run_effect=lambda _effect: None)) as role:
        serve(role)
    read_all(log, [DISPATCH_0])


def test_what_was_confirmed_survives_a_broker_that_is_killed_right_behind_it(
    broker: EmbeddedKafka, log: KafkaLog
) -> None:
    """The next transaction of the owner is aborted, which would undo what has lost its end."""
    both = [progress("feed"), ended("confirmed")]
    with closing(successor(log)) as owner:
        owner.commit([*both, ended("first")])
        owner.commit(both)
        broker.kill()
        broker.start()
        with suppress(LogError):
            owner._prove({owner._named(each.partition) for each in both})  # type: ignore[attr-defined]
            owner._withdraw(both)  # type: ignore[attr-defined]
    role = Role(role_settings(COORDINATOR_KIND, "one", transactional_id=OWNER), TOY, log, run_effect=lambda _: None)
    with closing(role):
        serve(role)
    assert facts(read_all(log, [DISPATCH_0])).count(both[1].fact) == 2


def test_what_was_decided_is_found_of_the_named_owner_only(log: KafkaLog) -> None:
    name, at = f"{log.cluster}.{OWNER}", frozenset({Partition(topic_name(log.cluster, "dispatch"), 0)})
    with closing(successor(log)) as owner:
        assert decisions_of(log.connection, name).found == ()
        owner.commit([ended("a")])
        assert decisions_of(log.connection, name).found == (Decided(Decision.COMMIT, at),)
        assert decisions_of(log.connection, f"{name}2").found == ()
        owner._withdraw([ended("b")])
        assert decisions_of(log.connection, name).found == (Decided(Decision.COMMIT, at), Decided(Decision.ABORT, at))
