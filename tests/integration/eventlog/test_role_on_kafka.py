"""The role loop on a real broker: elected, killed, followed, and of one mind with the log."""

import time
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from headgate.coordinator.core.kind import COORDINATOR_KIND
from headgate.eventlog.kafka import KafkaLog
from headgate.eventlog.log import Partition, Placed
from headgate.provisioning.time_scale import scaled_seconds
from headgate.records.base import Fact
from headgate.records.control import OperationKind, RequestSettled
from headgate.records.keys import OutcomeKey, RequestKey
from headgate.runtime.machine import Now
from headgate.runtime.role import Role, RoleState
from headgate_lab.worlds.kernel import role_settings
from support import build
from support.toy_role import TOY, ToyState

pytestmark = pytest.mark.integration

LEASE = 2.0
DEADLINE_SECONDS = scaled_seconds(120)
STEP_SECONDS_MAX = 0.1


class Clock:
    """Goes on by at most STEP_SECONDS_MAX a look, so that no lease runs out while the machine does something else."""

    def __init__(self) -> None:
        self._seen = self._now = time.monotonic()

    def now(self) -> float:
        seen = time.monotonic()
        self._now += min(seen - self._seen, STEP_SECONDS_MAX)
        self._seen = seen
        return self._now


class Members:
    """Roles driven in turn by this one thread, by one clock."""

    def __init__(self, log: KafkaLog) -> None:
        self.log = log
        self.clock = Clock()
        self.roles: dict[str, Role[ToyState]] = {}

    def add(self, owner_id: str) -> Role[ToyState]:
        settings = role_settings(COORDINATOR_KIND, owner_id, transactional_id=f"{self.log.cluster}-toy-0")
        role = self.roles[owner_id] = Role(settings, TOY, self.log, run_effect=lambda _effect: None)
        return role

    def until(self, fact: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_SECONDS
        while not fact():
            assert time.monotonic() < deadline, {name: role.status for name, role in self.roles.items()}
            for role in list(self.roles.values()):
                if fact():
                    return
                pause = role.turn(Now(self.clock.now(), time.time_ns() // 1_000_000))
                role.wait(min(pause, 0.05))

    def kill(self, owner_id: str) -> None:
        self.roles.pop(owner_id).close()


@pytest.fixture
def members(log: KafkaLog) -> Iterator[Members]:
    driven = Members(log)
    yield driven
    for role in driven.roles.values():
        role.close()


def request(log: KafkaLog, name: str) -> None:
    record = build.operation_requested(kind=OperationKind.PAUSE_FEED)
    with closing(log.writer("tester")) as writer:
        writer.write([Placed(Partition("changefeed", 0), Fact(RequestKey(name), record))], 10.0)


def test_an_owner_is_elected_killed_and_followed_and_a_zombie_is_fenced(log: KafkaLog, members: Members) -> None:
    one = members.add("one")
    members.until(lambda: one.status.state is RoleState.SERVING)
    first_rev = one.status.owner_rev
    two = members.add("two")
    request(log, "r1")
    members.until(lambda: OutcomeKey("r1") in one.view.records and OutcomeKey("r1") in two.view.records)
    # A record is in its view when it is read, and the owner is known when all is.
    members.until(lambda: two.status.owner_id == "one")
    assert two.status.state is RoleState.STANDBY

    frozen = members.roles.pop("one")
    request(log, "r2")
    members.until(lambda: two.status.state is RoleState.SERVING and OutcomeKey("r2") in two.view.records)
    assert first_rev is not None
    assert two.status.owner_rev is not None
    assert two.status.owner_rev > first_rev

    # Thawed, and its own clock has not noticed: only the broker can stop it.
    frozen_at = frozen.status.turned_at
    assert frozen_at is not None
    frozen.turn(Now(frozen_at + LEASE * 0.9, 0))
    assert frozen.status.state is RoleState.WAITING
    frozen.close()

    second_rev = two.status.owner_rev
    two.resign()
    members.until(lambda: two.status.state is RoleState.ENDED)
    members.kill("two")
    three = members.add("three")
    members.until(lambda: three.status.state is RoleState.SERVING)
    settled = three.view.records[OutcomeKey("r2")]
    assert isinstance(settled, RequestSettled)
    assert settled.owner_rev == second_rev
