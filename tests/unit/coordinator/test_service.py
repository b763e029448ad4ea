"""The coordinator's threads: a clean stop, a crash that is not hidden, effects that cannot be run."""

import threading
from typing import Any

import pytest

from headgate.coordinator.core.effects import FeedForgotten, FeedRefused, ForgetFeed, ResolveFeed
from headgate.coordinator.shell.effect_runner import FeedWork
from headgate.coordinator.shell.service import CoordinatorService
from headgate.eventlog.log import Delivery, Partition, Placed
from headgate.observability.metrics import new_registry
from headgate.observability.probes import Probes
from headgate.provisioning.time_scale import scaled_seconds
from headgate.records.base import Fact
from headgate.records.control import OperationKind, OwnerAnnounced, SessionEnded
from headgate.records.keys import OutcomeKey, RequestKey, SessionKey
from headgate.runtime.machine import EffectFailed
from headgate.runtime.role import RoleState
from headgate.runtime.service import WORKERS, RoleCrashedError, ServiceSettings
from headgate.supervision.threads import SUPERVISOR
from headgate_lab.memory_log.log import MemoryBroker
from support import build
from support.waiting import eventually

DEADLINE_SECONDS = scaled_seconds(120)

SPEC = '{"feed": "f", "source": {"topics": ["a.b"]}, "sink": {"type": "postgresql", "dsn": "host=x"}}'


class _NoWork:
    def run(self, effect: Any) -> Any:
        raise AssertionError(f"nobody asked for {effect}")


def _service(log: Any, probes: Probes, work: Any = None) -> CoordinatorService:
    settings = ServiceSettings(
        cluster="c",
        shards=(0,),
        lease_seconds=5,
        holder_lease_seconds=5,
        shutdown_seconds=DEADLINE_SECONDS,
        owner_id="me",
    )
    return CoordinatorService(settings, log, work or _NoWork(), probes=probes, registry=new_registry())


def owners(broker: MemoryBroker) -> list[OwnerAnnounced]:
    """What owners have announced, in order."""
    announce = Partition("announce", 0)
    read = broker.client().reader({announce: 0}).poll(10_000, 0.0)
    return [each.value for each in read if isinstance(each, Delivery) and isinstance(each.value, OwnerAnnounced)]


def test_an_owner_that_is_asked_to_resigns_and_stays() -> None:
    broker, probes = MemoryBroker(shards=1), Probes(60)
    service = _service(broker.client(), probes)
    results: list[bool] = []
    thread = threading.Thread(target=lambda: results.append(service.run()))
    thread.start()
    eventually(lambda: service.roles[0].status.state is RoleState.SERVING)
    first = service.roles[0].status.owner_rev
    asked = build.operation_requested(kind=OperationKind.RESIGN_OWNER, feed="")
    broker.append(Placed(Partition("changefeed", 0), Fact(RequestKey("r1"), asked)))
    eventually(lambda: 0 in [owner.lease_seconds for owner in owners(broker)], "it resigns on the log")
    eventually(lambda: service.roles[0].status.owner_rev not in (None, first), "alone, it takes over again")
    assert thread.is_alive()
    service.stop()
    thread.join(DEADLINE_SECONDS)
    assert results == [True]


def test_stopping_resigns_on_the_log() -> None:
    broker, probes = MemoryBroker(shards=1), Probes(60)
    service = _service(broker.client(), probes)
    results: list[bool] = []
    thread = threading.Thread(target=lambda: results.append(service.run()))
    assert probes.waiting() == ["coordinator 0: starting"]
    thread.start()
    eventually(lambda: service.roles[0].status.state is RoleState.SERVING)
    eventually(lambda: not probes.waiting())
    service.stop()
    thread.join(DEADLINE_SECONDS)
    assert results == [True]
    assert owners(broker)[-1].lease_seconds == 0
    assert {owner.owner_id for owner in owners(broker)} == {"me"}


def test_an_owner_that_does_not_see_its_log_is_not_ready_until_it_has_read_it() -> None:
    broker, probes = MemoryBroker(shards=1), Probes(60)
    log, dispatch = broker.client(), Partition("dispatch", 0)
    service = _service(log, probes)
    thread = threading.Thread(target=service.run)
    thread.start()
    try:
        eventually(lambda: service.roles[0].status.state is RoleState.SERVING, "it serves")
        eventually(lambda: not probes.waiting(), "ready")
        log.hold(dispatch)
        broker.append(Placed(dispatch, Fact(SessionKey("a9", "s9"), SessionEnded(1, "over", 0))))
        log.stop_reading(dispatch, told=True)
        eventually(probes.waiting, "not ready")
        (reason,) = probes.waiting()
        assert "the control topics cannot be read: dispatch/0: looking up where to begin failed" in reason
        assert service.roles[0].status.owner_rev is not None, "its term goes on: it is only blind"
        log.release(dispatch)
        eventually(lambda: not probes.waiting(), "ready again")
    finally:
        service.stop()
        thread.join(DEADLINE_SECONDS)


class _DeadSink:
    """Effects of feeds into the sink ``dead`` hang until it is mended; others are remembered."""

    def __init__(self) -> None:
        self.mended = threading.Event()
        self.hanging = 0
        self.done: list[str] = []

    def run(self, effect: Any) -> Any:
        if "host=dead" in effect.spec:
            self.hanging += 1
            self.mended.wait(DEADLINE_SECONDS)
        else:
            self.done.append(effect.feed)
        return FeedRefused("sink_refused: no")


def test_feeds_of_a_sink_that_does_not_answer_keep_no_other_feed_waiting() -> None:
    broker, probes, work = MemoryBroker(shards=1), Probes(60), _DeadSink()
    service = _service(broker.client(), probes, work)
    thread = threading.Thread(target=service.run)
    thread.start()

    def create(feed: str, host: str) -> None:
        spec = SPEC.replace('"f"', f'"{feed}"').replace("host=x", f"host={host}")
        asked = build.operation_requested(kind=OperationKind.CREATE_FEED, feed=feed, spec=spec)
        broker.append(Placed(Partition("changefeed", 0), Fact(RequestKey(feed), asked)))

    try:
        for number in range(2 * WORKERS):
            create(f"dead{number}", "dead")
        eventually(lambda: work.hanging == WORKERS)
        create("good", "x")
        eventually(lambda: work.done == ["good"])
        assert work.hanging == WORKERS
    finally:
        work.mended.set()
        service.stop()
        thread.join(DEADLINE_SECONDS)


class _BrokenLog:
    """A log with a bug."""

    shards = 1

    def writer(self, name: str) -> Any:
        return MemoryBroker().client().writer(name)

    def __getattr__(self, name: str) -> Any:
        raise ZeroDivisionError(name)


def test_a_crashed_role_ends_the_service_loudly() -> None:
    with pytest.raises(RoleCrashedError, match="shard 0 has crashed"):
        _service(_BrokenLog(), Probes(60)).run()
    assert [crash.thread for crash in SUPERVISOR.fatal] == ["role-0"]
    SUPERVISOR.reset()


class _BrokenConnection:
    @property
    def admin(self) -> Any:
        raise ZeroDivisionError("a bug")


def test_a_bug_met_by_one_feed_is_its_own_trouble() -> None:
    broker = MemoryBroker(shards=1)
    outcomes: dict[str, str] = {}

    def note(_partition: Partition, entry: Any) -> None:
        if isinstance(entry.key, OutcomeKey) and entry.value is not None:
            outcomes[entry.key.request] = entry.value.reason

    broker.on_committed = note
    work = FeedWork(_BrokenConnection(), cluster_id="x/c.", own_prefix="c.")  # type: ignore[arg-type]
    service = _service(broker.client(), Probes(60), work)
    thread = threading.Thread(target=service.run)
    thread.start()
    try:
        for feed in ("f", "g"):
            spec = SPEC.replace('"f"', f'"{feed}"')
            asked = build.operation_requested(kind=OperationKind.CREATE_FEED, feed=feed, spec=spec)
            broker.append(Placed(Partition("changefeed", 0), Fact(RequestKey(feed), asked)))
        eventually(lambda: sum("unexpected ZeroDivisionError" in reason for reason in outcomes.values()) == 2)
        assert thread.is_alive()
    finally:
        service.stop()
        thread.join(DEADLINE_SECONDS)
    assert not SUPERVISOR.fatal


def test_what_a_feed_says_is_checked_before_anything_is_asked() -> None:
    work = FeedWork(_BrokenConnection(), cluster_id="x/c.", own_prefix="c.")  # type: ignore[arg-type]
    other = work.run(ResolveFeed(request="r", feed="g", spec=SPEC))
    assert isinstance(other, FeedRefused)
    assert "for feed 'g', its description for 'f'" in other.reason
    bad = work.run(ResolveFeed(request="r", feed="f", spec='{"feed": "f", "sorce": {}}'))
    assert isinstance(bad, FeedRefused)
    assert "did you mean 'source'" in bad.reason


def test_an_unreachable_sink_is_asked_again_to_forget() -> None:
    spec = SPEC.replace("host=x", "host=127.0.0.1 port=1 dbname=x connect_timeout=2")
    work = FeedWork(_BrokenConnection(), cluster_id="x/c.", own_prefix="c.")  # type: ignore[arg-type]
    assert isinstance(work.run(ForgetFeed(feed="f", feed_id="0-1", spec=spec)), EffectFailed)


def test_a_stored_feed_that_cannot_be_read_can_be_updated_and_deleted() -> None:
    work = FeedWork(_BrokenConnection(), cluster_id="x/c.", own_prefix="c.")  # type: ignore[arg-type]
    unreadable = '{"feed": "f", "sorce": {}}'
    with pytest.raises(ZeroDivisionError):  # the broker is asked: nothing was wrong until then
        work.run(ResolveFeed(request="r", feed="f", spec=SPEC, before=unreadable))
    assert isinstance(work.run(ForgetFeed(feed="f", feed_id="0-1", spec=unreadable)), FeedForgotten)


def test_a_filter_that_null_makes_empty_is_refused_unless_the_feed_has_it() -> None:
    work = FeedWork(_BrokenConnection(), cluster_id="x/c.", own_prefix="c.")  # type: ignore[arg-type]
    filtered = SPEC[:-1] + ', "where": "a NOT IN (1, NULL)"}'
    for before in ("", SPEC):
        refused = work.run(ResolveFeed(request="r", feed="f", spec=filtered, before=before))
        assert isinstance(refused, FeedRefused)
        assert "where: NOT IN a list with NULL" in refused.reason
    with pytest.raises(ZeroDivisionError):
        work.run(ResolveFeed(request="r", feed="f", spec=filtered, before=filtered))
