"""Who owns a shard: campaigns, replays and take-overs, driven by hand on the in-memory log."""

import pytest

from headgate.eventlog.log import Partition, Placed
from headgate.eventlog.replay import HANGING_AGAIN_SECONDS, HANGING_SECONDS
from headgate.records.base import Fact
from headgate.records.keys import OutcomeKey, OwnerKey
from headgate.runtime.role import RoleEndedError, RoleState
from headgate_lab.memory_log.log import MemoryTransactionalWriter
from support.toy_role import ANNOUNCE, LEASE, World, transactional_id

CHANGEFEED = Partition("changefeed", 0)


def test_on_an_empty_log_the_first_campaigns_at_once_and_its_announcement_is_owner_rev(world: World) -> None:
    one = world.member("one").serve()
    (first_offset, first), (_, second) = world.announced()
    assert first.owner_rev is None
    assert second.owner_rev == first_offset == one.role.status.owner_rev
    assert (first.owner_id, first.lease_seconds) == ("one", LEASE)


def test_a_new_process_is_a_standby_as_long_as_the_owner_is_heard(world: World) -> None:
    one = world.member("one").serve()
    two = world.member("two")
    world.run(4 * LEASE, one, two)
    assert (one.state, two.state) == (RoleState.SERVING, RoleState.STANDBY)
    assert two.role.status.replayed
    assert two.role.status.owner_id == "one"
    assert two.role.digest() == one.role.digest()


def test_it_takes_over_when_the_lease_has_run_out_since_the_last_record_and_not_before(world: World) -> None:
    one, two = world.member("one").serve(), world.member("two")
    world.run(2 * LEASE, one, two)
    old_rev = one.role.status.owner_rev
    world.run(LEASE - 1.25, two)
    assert two.state is RoleState.STANDBY
    world.run(2.0, two)
    assert two.state is RoleState.SERVING
    assert old_rev is not None
    assert two.role.status.owner_rev is not None
    assert two.role.status.owner_rev > old_rev
    assert (one.role.counters.failovers, two.role.counters.failovers) == (0, 1), "the first term of all is none"


def test_a_resigned_owner_is_followed_at_once(world: World) -> None:
    one, two = world.member("one").serve(), world.member("two")
    world.run(1.0, one, two)
    one.role.resign()
    one.turn()
    assert one.state is RoleState.ENDED
    assert world.announced()[-1][1].lease_seconds == 0.0
    two.serve()
    assert (two.role.counters.terms, two.role.counters.failovers) == (1, 0), "who resigns is followed"
    with pytest.raises(RoleEndedError, match="resigned"):
        one.turn()


def test_a_resignation_that_cannot_be_written_still_ends_the_role(world: World) -> None:
    one = world.member("one").serve()
    one.log.cut()
    one.role.resign()
    one.turn()
    assert one.state is RoleState.ENDED


def test_a_new_process_that_has_not_read_to_the_end_does_not_take_the_shard_for_free(world: World) -> None:
    one, two = world.member("one").serve(), world.member("two")
    two.log.hold(ANNOUNCE, at=0)
    world.run(LEASE - 1.0, one, two)
    two.log.release(ANNOUNCE)
    world.run(2 * LEASE, one, two)
    assert two.role.counters.campaigns == 0


@pytest.mark.parametrize("told", [True, False], ids=["told", "silently"])
def test_a_standby_whose_client_stops_reading_lets_the_owner_serve(world: World, told: bool) -> None:
    """Its client is replaced before the doubt about a silent owner ends, which is shorter than the usual 10 s."""
    one, two = world.member("one").serve(), world.member("two")
    world.run(2 * LEASE, one, two)
    two.log.stop_reading(ANNOUNCE, told=told)
    world.run(6 * LEASE, one, two)
    assert (one.state, two.state, two.role.counters.campaigns) == (RoleState.SERVING, RoleState.STANDBY, 0)
    world.run(LEASE + 1.0, two)
    assert two.state is RoleState.SERVING, "it reads again: when nobody writes any more, it takes over"


def test_what_the_last_owner_committed_just_before_init_is_replayed_before_the_term_begins(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = world.member("one").serve(), world.member("two")
    world.run(1.0, one, two)
    init = MemoryTransactionalWriter.init

    def late(writer: MemoryTransactionalWriter) -> None:
        world.request("late")
        one.turn()
        two.log.hold(CHANGEFEED, at=0)
        init(writer)

    monkeypatch.setattr(MemoryTransactionalWriter, "init", late)
    world.run(LEASE + 2.0, two)
    assert two.state is RoleState.REPLAYING
    two.log.release(CHANGEFEED)
    two.serve()
    assert two.outcomes == {"late": "number 0"}


def test_of_two_that_campaign_at_once_the_last_init_wins_and_the_other_waits(world: World) -> None:
    one, two = world.member("one"), world.member("two")
    while RoleState.REPLAYING not in (one.state, two.state):
        one.turn()
        two.turn()
    world.run(2.0, one, two)
    assert (one.state, two.state) == (RoleState.STANDBY, RoleState.SERVING)
    world.run(3 * LEASE, one, two)
    assert (one.state, two.state) == (RoleState.STANDBY, RoleState.SERVING)


def test_an_announcement_read_while_replaying_says_that_a_later_init_has_won(world: World) -> None:
    one, two = world.member("one"), world.member("two")
    world.broker.leave_open("other-shard", [Placed(ANNOUNCE, Fact(OwnerKey(1), None))])
    world.run(LEASE + 2.0, one)  # an open transaction hides the end: it campaigns by silence, and cannot finish
    assert one.state is RoleState.REPLAYING
    world.run(LEASE + 2.0, one, two)
    assert two.state is RoleState.REPLAYING
    world.broker.end_transaction("other-shard", commit=False)
    two.serve()
    one.turn()
    assert one.state is RoleState.WAITING
    assert "while I was replaying" in (one.role.status.last_error or "")


def test_a_transaction_left_open_by_a_killed_owner_does_not_keep_the_standby_waiting(world: World) -> None:
    one, two = world.member("one").serve(), world.member("two")
    world.run(1.0, one, two)
    world.broker.leave_open(transactional_id(), [Placed(CHANGEFEED, Fact(OutcomeKey("x"), None))])
    world.request("behind")
    fresh = world.member("fresh")
    world.run(LEASE + 2.0, two)
    assert two.state is RoleState.SERVING
    assert two.outcomes == {"behind": "found open"}
    world.run(1.0, fresh)
    assert fresh.state is RoleState.STANDBY


def test_a_transaction_left_open_on_announce_moves_the_killed_owners_shard_alone() -> None:
    world = World(shards=2)
    well, killed = world.member("well", 0).serve(), world.member("killed", 1).serve()
    of_well, of_killed = [[world.member(name, shard) for name in ("b", "c")] for shard in (0, 1)]
    world.run(2.0, well, killed, *of_well, *of_killed)
    _, last = world.announced(shard=1)[-1]
    world.broker.leave_open(transactional_id(1), [Placed(ANNOUNCE, Fact(OwnerKey(1), last))])
    world.run(3 * LEASE, well, *of_well, *of_killed)
    assert [standby.role.counters.campaigns for standby in of_well] == [0, 0]
    assert well.state is RoleState.SERVING
    assert sorted(standby.state for standby in of_killed) == [RoleState.SERVING, RoleState.STANDBY]


def test_an_owner_that_writes_behind_a_transaction_that_nobody_ends_is_waited_for_a_lease_and_no_longer(
    world: World,
) -> None:
    one, two = world.member("one").serve(), world.member("two")
    world.run(2.0, one, two)
    world.broker.leave_open("stranger", [Placed(ANNOUNCE, Fact(OwnerKey(7), None))])
    world.run(2 * LEASE - 0.5, one, two)
    assert two.role.counters.campaigns == 0
    world.run(LEASE, one, two)
    assert two.role.counters.campaigns == 1


def test_heartbeats_on_announce_do_not_hide_that_another_topic_is_pinned(world: World) -> None:
    one, two = world.member("one").serve(), world.member("two")
    world.run(1.0, one, two)
    world.broker.leave_open(transactional_id(), [Placed(CHANGEFEED, Fact(OutcomeKey("x"), None))])
    world.run(LEASE + 2.0, two, beat=("a1",))
    assert two.state is RoleState.SERVING


def test_a_replay_that_can_never_end_ends_the_role_with_the_place(world: World) -> None:
    world.broker.leave_open("stranger", [Placed(CHANGEFEED, Fact(OutcomeKey("x"), None))])
    one = world.member("one")
    with pytest.raises(RoleEndedError, match="changefeed/0 at 0 of 1"):
        world.run(120.0, one)


def test_what_a_broker_has_lost_the_end_of_is_ended_once_when_a_campaign_stands_still(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[Placed]] = []

    def end_hanging(_writer: MemoryTransactionalWriter, harmless: list[Placed]) -> bool:
        asked.append(harmless)
        world.broker.end_transaction("lost", commit=True)
        return True

    monkeypatch.setattr(MemoryTransactionalWriter, "end_hanging", end_hanging)
    world.broker.leave_open("lost", [Placed(CHANGEFEED, Fact(OutcomeKey("x"), None))])
    one = world.member("one")
    world.run(LEASE + 2.0, one)
    assert (one.state, asked) == (RoleState.REPLAYING, [])
    world.run(HANGING_SECONDS, one)
    assert one.state is RoleState.SERVING
    assert asked == [[Placed(CHANGEFEED, Fact(OutcomeKey("-"), None))]]


def test_of_a_strangers_transaction_nothing_is_known_and_it_is_asked_again_after_a_while(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[Placed]] = []
    monkeypatch.setattr(MemoryTransactionalWriter, "end_hanging", lambda _writer, placed: bool(asked.append(placed)))
    world.broker.leave_open("stranger", [Placed(CHANGEFEED, Fact(OutcomeKey("x"), None))])
    one = world.member("one")
    world.run(HANGING_SECONDS + HANGING_AGAIN_SECONDS, one)
    assert (one.state, len(asked)) == (RoleState.REPLAYING, 1)
    world.run(HANGING_AGAIN_SECONDS, one)
    assert (one.state, len(asked)) == (RoleState.REPLAYING, 2)


def test_a_lagging_standby_reads_to_the_end_before_it_believes_in_silence(world: World) -> None:
    one, two = world.member("one").serve(), world.member("two")
    world.run(1.0, one, two)
    two.log.hold(ANNOUNCE)
    world.run(LEASE - 0.5, one, two)
    assert two.state is RoleState.STANDBY
    world.run(0.75, one, two)
    two.log.release(ANNOUNCE)
    world.run(2 * LEASE, one, two)
    assert two.role.counters.campaigns == 0


def test_owners_of_different_shards_share_announce_and_nothing_else() -> None:
    world = World(shards=2)
    zero, one = world.member("zero", 0).serve(), world.member("one", 1).serve()
    world.request("r0", shard=0)
    world.request("r1", shard=1)
    world.run(4 * LEASE, zero, one)
    assert (zero.state, one.state) == (RoleState.SERVING, RoleState.SERVING)
    assert (zero.outcomes, one.outcomes) == ({"r0": "number 0"}, {"r1": "number 0"})
    assert zero.role.status.owner_rev != one.role.status.owner_rev
    assert OwnerKey(1) in zero.role.view.records
    zero.turn()
    one.turn()
    assert zero.role.digest() == world.replayed_digest(0)
    assert one.role.digest() == world.replayed_digest(1)
