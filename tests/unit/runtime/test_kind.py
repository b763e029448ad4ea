"""The role loop serves any kind of owner: a small one, with keys and a machine of its own, beside a coordinator."""

from collections.abc import Iterator
from typing import Any, ClassVar

import pytest

from headgate.records import registry
from headgate.records.base import Key, Record
from headgate.records.control import MemberAnnounced, OperationRequested, OwnerAnnounced, RequestSettled
from headgate.records.keys import OutcomeKey, OwnerKey, RequestKey
from headgate.runtime.kind import OwnerKind
from headgate.runtime.machine import Arrived, Decision, Machine, Now, TermBegan
from headgate.runtime.presence import Presence
from headgate.runtime.role import Role, RoleState
from headgate.runtime.settings import RoleSettings
from headgate_lab.worlds.kernel import role_settings
from support.toy_role import ANNOUNCE, LEASE, World, settled, transactional_id


class ClerkKey(Key, frozen=True, order=True):
    """``clerk/<shard>`` on announce."""

    topic: ClassVar[str] = "announce"
    prefix: ClassVar[tuple[str, ...]] = ("clerk",)
    record: ClassVar[type] = OwnerAnnounced
    by_owner: ClassVar[bool] = True
    names_owner: ClassVar[bool] = True
    shard: int


class ClerkMemberKey(Key, frozen=True, order=True):
    """``clerk-member/<id>`` on announce."""

    topic: ClassVar[str] = "announce"
    prefix: ClassVar[tuple[str, ...]] = ("clerk-member",)
    record: ClassVar[type] = MemberAnnounced
    member: str


CLERK = OwnerKind(
    name="clerk",
    topics=("changefeed",),
    owner_key=ClerkKey,
    member_key=ClerkMemberKey,
    harmless={"announce": ClerkMemberKey("-"), "changefeed": OutcomeKey("-")},
)


class State:
    def __init__(self, shard: int) -> None:
        self.shard = shard
        self.owner_rev = -1
        self.open: set[str] = set()


def evolve(state: State, key: Key, value: Record | None, _offset: int) -> None:
    if isinstance(key, RequestKey) and isinstance(value, OperationRequested):
        state.open.add(key.request)
    elif isinstance(key, OutcomeKey) and isinstance(value, RequestSettled):
        state.open.discard(key.request)


def decide(state: State, given: Any, now: Now) -> Decision:
    """Every request is settled, at once or by the owner that finds it."""
    if isinstance(given, TermBegan | Arrived):
        return Decision(facts=tuple(settled(state, each, "seen", now) for each in sorted(state.open)))  # type: ignore[arg-type]
    return Decision()


MACHINE: Machine[State] = Machine(State, evolve, decide, lambda state: ",".join(sorted(state.open)))


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    monkeypatch.setitem(registry.KEY_FORMS, "announce", (ClerkKey, ClerkMemberKey, *registry.KEY_FORMS["announce"]))
    return World()


def settings(owner_id: str) -> RoleSettings:
    return role_settings(CLERK, owner_id)


def clerk(world: World, owner_id: str) -> Role[State]:
    return Role(settings(owner_id), MACHINE, world.broker.client(), run_effect=lambda _effect: None)


def turn_until(world: World, role: Role[State], state: RoleState, *others: Any) -> None:
    for _ in range(400):
        if role.status.state is state:
            return
        world.clock += 0.05
        for each in (role, *others):
            each.turn(world.now())
    raise AssertionError(f"never {state}: {role.status}")


def on_announce(world: World) -> list[Key]:
    reader = world.broker.client().reader({ANNOUNCE: 0})
    return [each.key for each in reader.poll(1_000, 0.0)]  # type: ignore[union-attr] # nothing here is garbage


def test_it_campaigns_announces_itself_and_decides(world: World) -> None:
    one = clerk(world, "one")
    turn_until(world, one, RoleState.SERVING)
    assert on_announce(world)[0] == ClerkKey(0)
    world.request("r1")
    for _ in range(3):
        one.turn(world.now())
    assert one.view.open == set()


def test_what_was_left_open_is_found_by_the_next_owner(world: World) -> None:
    one, two = clerk(world, "one"), clerk(world, "two")
    turn_until(world, one, RoleState.SERVING)
    turn_until(world, two, RoleState.STANDBY)
    world.request("r1")
    turn_until(world, two, RoleState.SERVING)
    assert two.view.open == set()
    assert two.counters.failovers == 1, "one never resigned"


def test_owners_of_two_kinds_do_not_disturb_each_other(world: World) -> None:
    coordinator = world.member("c").serve()
    one = clerk(world, "one")
    turn_until(world, one, RoleState.SERVING, coordinator.role)
    for _ in range(int(4 * LEASE / 0.25)):
        world.clock += 0.25
        coordinator.turn()
        one.turn(world.now())
    assert (coordinator.role.counters.terms, one.counters.terms) == (1, 1)
    assert transactional_id() != "clerk-0"
    assert {ClerkKey(0), OwnerKey(0)} <= set(on_announce(world))


def test_its_process_says_that_it_is_there_under_a_key_of_its_kind(world: World) -> None:
    presence = Presence(world.broker.client(), settings("one"), lambda: [0], lambda: 0)
    assert presence.beat()
    assert on_announce(world) == [ClerkMemberKey("one")]
    presence.leave()
    assert on_announce(world) == [ClerkMemberKey("one")] * 2, "and deletes it"
