"""Who follows and who gives away: the picture each role makes itself of owners and processes."""

import pytest

from headgate.coordinator.core.kind import COORDINATOR_KIND
from headgate.records.control import MemberAnnounced
from headgate.records.keys import MemberKey, OwnerKey
from headgate.runtime.presence import Presence
from headgate.runtime.role import RoleState
from headgate.runtime.roster import MEMBER_FORGOTTEN_SECONDS, Roster
from headgate_lab.memory_log.log import MemoryBroker
from headgate_lab.worlds.kernel import role_settings
from support import build
from support.toy_role import LEASE, World

ALL = (0, 1, 2, 3)


def _owner(roster: Roster, shard: int, name: str, now: float, *, lease: float = LEASE) -> None:
    roster.learn(
        OwnerKey(shard), build.owner_announced(owner_id=name, owner_rev=0, version="v", lease_seconds=lease), now
    )


def _member(roster: Roster, name: str, now: float, shards: tuple[int, ...] = ALL) -> None:
    roster.learn(MemberKey(name), MemberAnnounced(shards, "v", 1, LEASE, 0), now)


def _lines(names: str, owners: dict[int, str], *, now: float = 0.0) -> dict[int, list[str]]:
    """Per free shard, who waits how long: names in the order in which they would campaign."""
    free = [shard for shard in ALL if shard not in owners]
    waits: dict[int, list[tuple[float, str]]] = {shard: [] for shard in free}
    for name in names:
        for shard in free:
            roster = Roster(COORDINATOR_KIND, name, shard, LEASE)
            for other in names:
                _member(roster, other, now)
            for owned, owner in owners.items():
                _owner(roster, owned, owner, now)
            waits[shard].append((roster.wait_seconds(now), name))
    return {shard: [name for _, name in sorted(found)] for shard, found in waits.items()}


class TestWhoFollows:
    def test_shards_that_are_all_free_go_round(self) -> None:
        assert {shard: line[0] for shard, line in _lines("ab", {}).items()} == {0: "a", 1: "b", 2: "a", 3: "b"}

    def test_who_owns_least_is_first_and_one_is_at_once(self) -> None:
        assert _lines("abc", {0: "a", 1: "a", 2: "b"}) == {3: ["c", "b", "a"]}
        roster = Roster(COORDINATOR_KIND, "c", 3, LEASE)
        for shard, name in ((0, "a"), (1, "a"), (2, "b")):
            _owner(roster, shard, name, 0.0)
        assert roster.wait_seconds(0.0) == 0.0

    def test_the_last_owner_comes_last(self) -> None:
        roster = Roster(COORDINATOR_KIND, "b", 0, LEASE)
        _member(roster, "a", 0.0)
        _owner(roster, 0, "a", 0.0, lease=0.0)
        _owner(roster, 1, "b", 0.0)
        assert roster.wait_seconds(0.0) == 0.0

    def test_one_that_is_silent_or_does_not_stand_is_not_waited_for(self) -> None:
        roster = Roster(COORDINATOR_KIND, "b", 0, LEASE)
        _owner(roster, 1, "b", 2 * LEASE)
        _member(roster, "a", 0.0)
        _member(roster, "c", 2 * LEASE, (1, 2))
        assert roster.wait_seconds(2 * LEASE) == 0.0
        _member(roster, "a", 2 * LEASE)
        assert 0.0 < roster.wait_seconds(2 * LEASE) <= LEASE


class TestWhoGivesAway:
    def _settled(self, me: str, shard: int, owners: str, members: str, *, seconds: float = LEASE + 1) -> str | None:
        """What ``me`` finds after ``seconds`` in which nothing changed."""
        roster = Roster(COORDINATOR_KIND, me, shard, LEASE)
        found, now = None, 0.0
        while now <= seconds:
            for number, name in enumerate(owners):
                _owner(roster, number, name, now)
            for name in members:
                _member(roster, name, now)
            found = roster.poorer(now)
            now += LEASE / 5
        return found

    def test_one_shard_goes_to_who_has_least_and_only_one_reader_says_so(self) -> None:
        said = {shard: self._settled("a", shard, "aaaa", "ab") for shard in ALL}
        assert said == {0: None, 1: None, 2: None, 3: "b"}

    def test_a_difference_of_one_is_let_be(self) -> None:
        assert [self._settled("a", shard, "aabb", "ab") for shard in ALL] == [None] * 4
        assert [self._settled("a", shard, "aab", "ab") for shard in range(3)] == [None] * 3

    def test_nothing_moves_before_the_picture_has_stood_for_a_lease(self) -> None:
        assert self._settled("a", 3, "aaaa", "ab", seconds=LEASE - 1) is None

    def test_a_process_that_does_not_want_the_shard_gets_none(self) -> None:
        roster = Roster(COORDINATOR_KIND, "a", 1, LEASE)
        found = []
        for step in range(12):
            now = step * LEASE / 5
            _owner(roster, 0, "a", now)
            _owner(roster, 1, "a", now)
            _member(roster, "b", now, (7,))
            found.append(roster.poorer(now))
        assert found == [None] * 12


def test_members_silent_for_long_are_forgotten_once() -> None:
    roster = Roster(COORDINATOR_KIND, "a", 0, LEASE)
    _member(roster, "b", 0.0)
    assert roster.forget_gone(MEMBER_FORGOTTEN_SECONDS) == []
    assert roster.forget_gone(MEMBER_FORGOTTEN_SECONDS + 1) == ["b"]
    assert roster.forget_gone(MEMBER_FORGOTTEN_SECONDS + 2) == []


def _presence(broker: MemoryBroker, name: str) -> Presence:
    return Presence(broker.client(), role_settings(COORDINATOR_KIND, name), lambda: (0,), lambda: 0)


def test_the_owner_of_the_first_shard_deletes_what_a_killed_process_has_left() -> None:
    world = World()
    presence = _presence(world.broker, "gone")
    assert presence.beat()
    one = world.member("one")
    world.run(MEMBER_FORGOTTEN_SECONDS + 2 * LEASE, one)
    deleted = [fact for facts in one.committed for fact in facts if fact.key == MemberKey("gone")]
    assert [fact.value for fact in deleted] == [None]


def test_a_presence_that_cannot_be_written_is_no_error() -> None:
    broker = MemoryBroker()
    presence = _presence(broker, "a")
    presence._writer._log.cut()  # type: ignore[attr-defined]
    assert not presence.beat()
    presence.leave()


def test_an_owner_of_too_many_steps_down_from_one_and_keeps_what_comes_back() -> None:
    world = World(shards=2)
    roles = [world.member("one", shard).serve() for shard in (0, 1)]
    presence = _presence(world.broker, "two")
    presence._shards = lambda: (0, 1)
    for _ in range(40):
        presence.beat()
        world.run(LEASE / 5, *roles)
    falls = [role.role.counters.falls for role in roles]
    # "two" never takes what it is given, so it comes back after a while, and is not given away again for a minute.
    assert falls == [0, 1]
    assert [role.state for role in roles] == [RoleState.SERVING] * 2
    assert "two" in (roles[1].role.status.last_error or "")


@pytest.mark.parametrize("count", [2, 3])
def test_a_new_process_gets_its_share_and_then_all_is_still(count: int) -> None:
    world = World(shards=4)
    names = [f"p{number}" for number in range(count)]
    members = {name: [world.member(name, shard) for shard in ALL] for name in names}
    presences = [_presence(world.broker, name) for name in names]
    for presence in presences:
        presence._shards = lambda: ALL

    def live(seconds: float, present: int) -> None:
        for _ in range(round(seconds)):
            for presence in presences[:present]:
                presence.beat()
            world.run(1.0, *(role for name in names[:present] for role in members[name]))

    live(2 * LEASE, 1)
    assert all(role.state is RoleState.SERVING for role in members["p0"])
    live(20 * LEASE, count)
    owned = {name: sum(role.state is RoleState.SERVING for role in members[name]) for name in names}
    assert sorted(owned.values()) == sorted([4 // count + (number < 4 % count) for number in range(count)])
    terms = [role.role.counters.terms for name in names for role in members[name]]
    live(40 * LEASE, count)
    assert terms == [role.role.counters.terms for name in names for role in members[name]]
