"""Requests: written as soon as everybody alive can read them, answered by several owners, and always withdrawn."""

import itertools
import time
from types import SimpleNamespace
from typing import Any

import pytest

from headgate import SCHEMA_VERSION
from headgate.eventlog.log import LogError, Partition, Placed, SchemaLevel
from headgate.records.base import Fact, Key, Record
from headgate.records.control import (
    OperationKind,
    OperationRequested,
    OutcomeStatus,
    RequestSettled,
)
from headgate.records.fitting import TEXT_LENGTH_MAX
from headgate.records.generation import GenerationOwnerKey
from headgate.records.keys import AgentKey, OutcomeKey, OwnerKey, RequestKey
from headgate.runtime import requests
from headgate.runtime.requests import (
    Request,
    RequestError,
    RequestFailedError,
    RequestRefusedError,
    RequestTimedOutError,
    ask,
    ask_all,
    described,
    feed_request,
)
from headgate_lab.memory_log.log import MemoryBroker
from support import build

ANNOUNCE = Partition("announce", 0)


BLANK: dict[str, Any] = dict.fromkeys(("spec", "table", "agent")) | {
    "kind": OperationKind.PAUSE_FEED,
    "feed": "shop",
    "requested_by": "me",
    "requested_ms": 0,
}


def asked(shard: int = 0, request: str = "r", **more: Any) -> Request:
    return feed_request(OperationRequested(**(BLANK | more)), shard, request)


SPLIT: dict[str, Any] = {"kind": OperationKind.SPLIT_TABLE, "table": "t", "parts": 2}
"""A request that the first schema level cannot express."""


class Cluster(MemoryBroker):
    """Owners that answer at once with what a test has put into ``answers``, by shard."""

    def __init__(self, shards: int = 1) -> None:
        super().__init__(shards=shards)
        self.answers: dict[int, list[RequestSettled | None]] = {}
        self.written: list[tuple[Key | str, Record | None]] = []
        self.on_committed = self._answer

    def announce(self, owner: str, shard: int = 0, *, level: int = 2, lease_seconds: float = 5.0) -> None:
        record = build.owner_announced(owner_id=owner, schema_version=level, lease_seconds=lease_seconds, level=level)
        self.append(Placed(ANNOUNCE, Fact(OwnerKey(shard), record)), level)

    def _answer(self, partition: Partition, entry: object) -> None:
        key, value = getattr(entry, "key", None), getattr(entry, "value", None)
        self.written.append((key or "", value))
        if isinstance(key, RequestKey) and value is not None:
            for outcome in self.answers.get(partition.number, []):
                self.append(Placed(partition, Fact(OutcomeKey(key.request), outcome)))


def settled(status: OutcomeStatus, reason: str = "why") -> RequestSettled:
    return RequestSettled(1, status, reason, 1)


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = itertools.count()
    clock = SimpleNamespace(
        monotonic=lambda: float(next(seconds)),
        sleep=lambda _s: None,
        strftime=lambda *_: "then",
        gmtime=lambda _s: None,
    )
    monkeypatch.setattr(requests, "time", clock)


def test_the_last_outcome_counts() -> None:
    cluster = Cluster()
    cluster.answers[0] = [settled(OutcomeStatus.ACCEPTED), settled(OutcomeStatus.DONE, "paused")]
    assert ask(cluster.client(), asked(), 5.0, client="test").reason == "paused"
    assert (RequestKey("r"), None) in cluster.written


def test_several_owners_are_asked_at_once_and_each_is_withdrawn() -> None:
    cluster = Cluster(shards=3)
    cluster.announce("two", 2)
    cluster.answers |= {0: [settled(OutcomeStatus.DONE)], 1: [settled(OutcomeStatus.FAILED)]}
    wanted = [asked(shard=shard, request=f"r{shard}") for shard in range(3)]
    done, failed, silent = ask_all(cluster.client(), wanted, 5.0, client="test")
    assert isinstance(done, RequestSettled)
    assert isinstance(failed, RequestFailedError)
    assert isinstance(silent, RequestTimedOutError)
    assert "two, the owner of shard 2" in str(silent)
    assert {key for key, value in cluster.written if value is None} == {RequestKey(f"r{shard}") for shard in range(3)}


@pytest.mark.parametrize("lease_seconds", [None, 0.0])
def test_without_an_owner_the_error_says_how_to_start_one(lease_seconds: float | None) -> None:
    cluster = Cluster()
    if lease_seconds is not None:
        cluster.announce("resigned", lease_seconds=lease_seconds)
    with pytest.raises(RequestTimedOutError, match=r"no owner.*headgate serve coordinator"):
        ask(cluster.client(), asked(), 5.0, client="test")


def test_a_lost_connection_is_a_log_error() -> None:
    log = Cluster().client()
    log.fail_write(applied=False)
    with pytest.raises(LogError):
        ask(log, asked(), 5.0, client="test")


# --- schema levels ---


def test_the_level_of_the_log_is_read_when_a_request_needs_it() -> None:
    cluster = Cluster()
    cluster.announce("owner")
    cluster.answers[0] = [settled(OutcomeStatus.DONE)]
    ask(cluster.client(SchemaLevel(SCHEMA_VERSION)), asked(**SPLIT), 5.0, client="test")


AGENT = build.agent_announced(version="old", address="host", heartbeat=0)
OWNER = build.owner_announced(owner_id="g1", version="old", level=1)


@pytest.mark.parametrize(("key", "old"), [(AgentKey("a1", "s1"), AGENT), (GenerationOwnerKey(0), OWNER)])
def test_a_process_that_cannot_read_a_request_is_named(key: Key, old: Record) -> None:
    cluster = Cluster()
    cluster.announce("owner", level=1)
    cluster.append(Placed(ANNOUNCE, Fact(key, old)))
    with pytest.raises(RequestRefusedError, match=f"upgrade of .*{key.text()}"):
        ask(cluster.client(SchemaLevel(SCHEMA_VERSION)), asked(**SPLIT), 5.0, client="test")
    assert not any(isinstance(each, RequestKey) for each, _ in cluster.written)


def test_an_owner_that_raises_the_level_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    cluster.answers[0] = [settled(OutcomeStatus.DONE)]
    # Not in the module of that name: threads of libraries sleep, too.
    clock = SimpleNamespace(**{**vars(time), "sleep": lambda _seconds: cluster.announce("late")})
    monkeypatch.setattr(requests, "time", clock)
    ask(cluster.client(SchemaLevel(SCHEMA_VERSION)), asked(**SPLIT), 5.0, client="test")


def test_a_request_that_needs_an_owner_to_be_written_says_that_there_is_none() -> None:
    with pytest.raises(RequestTimedOutError, match="no owner"):
        ask(Cluster().client(SchemaLevel(SCHEMA_VERSION)), asked(**SPLIT), 5.0, client="test")


# --- texts ---


@pytest.mark.parametrize("user", ["x" * 2_000_000, "odd\udcff", "é" * TEXT_LENGTH_MAX])
def test_whoever_asks_may_have_any_name(user: str) -> None:
    cluster = Cluster()
    cluster.answers[0] = [settled(OutcomeStatus.DONE)]
    ask(cluster.client(), asked(requested_by=user), 5.0, client="test")
    (record,) = (value for _, value in cluster.written if isinstance(value, OperationRequested))
    assert len(record.requested_by.encode()) < 5 * TEXT_LENGTH_MAX


@pytest.mark.parametrize("name", ["feed", "table", "agent"])
def test_a_name_that_nothing_can_write_is_refused(name: str) -> None:
    cluster = Cluster()
    with pytest.raises(RequestRefusedError, match="not valid UTF-8") as refused:
        ask(cluster.client(), asked(**{name: "\udcff"}), 5.0, client="test")
    assert refused.value.reason.startswith("not_found: ")
    str(refused.value).encode()
    assert cluster.written == []


@pytest.mark.parametrize("stays", [False, True])
@pytest.mark.parametrize("status", [None, *OutcomeStatus])
def test_a_request_stays_only_while_its_owner_works_on_it(status: OutcomeStatus | None, stays: bool) -> None:
    cluster = Cluster()
    cluster.answers[0] = [] if status is None else [settled(status)]
    one = asked()
    request = Request(**{name: getattr(one, name) for name in one.__struct_fields__ if name != "stays"}, stays=stays)
    (answer,) = ask_all(cluster.client(), [request], 5.0, client="test")
    assert isinstance(answer, RequestError) == (status is not OutcomeStatus.DONE)
    is_there = (RequestKey("r"), None) not in cluster.written
    assert is_there == (stays and status is OutcomeStatus.ACCEPTED)


@pytest.mark.parametrize("stays", [False, True])
def test_a_request_that_another_command_deletes_is_not_awaited_to_the_end(stays: bool) -> None:
    cluster = Cluster()
    cluster.answers[0] = [settled(OutcomeStatus.ACCEPTED), None]
    one = asked()
    request = Request(**{name: getattr(one, name) for name in one.__struct_fields__ if name != "stays"}, stays=stays)
    (answer,) = ask_all(cluster.client(), [request], 5.0, client="test")
    assert isinstance(answer, RequestFailedError)
    assert "was cancelled: another command has deleted it" in str(answer)


@pytest.mark.parametrize("kind", OperationKind)
def test_errors_name_what_was_asked_for(kind: OperationKind) -> None:
    given = build.operation_requested(kind=kind, feed="shop", table="public.orders", agent="a1")
    words = described(given, 3).split()
    verb, _, subject = kind.value.partition("_")
    assert words[0] == {"remove": "delete", "resign": "hand"}.get(verb, verb)
    assert {"feed": "shop", "table": "public.orders", "agent": "a1", "owner": "3"}[subject] in words
