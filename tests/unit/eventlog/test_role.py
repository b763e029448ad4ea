"""The rules of the role loop (design §2), each driven by hand on the in-memory log."""

import itertools

import pytest

from headgate.eventlog.candidate import HANGING_AGAIN_SECONDS, HANGING_SECONDS
from headgate.eventlog.log import Partition, Placed
from headgate.eventlog.machine import Arrived, EffectFinished, Enthroned, HolderSilent, TimerFired
from headgate.eventlog.memory import CommitFault, MemoryTransactionalWriter
from headgate.eventlog.role import BACKOFF_SECONDS, RoleEndedError, RoleState, TermEffect
from headgate.records.control import OperationKind, OwnerAnnounced, RequestSettled
from headgate.records.keys import AgentKey, Fact, OutcomeKey, OwnerKey, SessionKey
from toy_role import AGENT_LEASE, ANNOUNCE, LEASE, TIMER_SECONDS, Resolve, World, transactional_id

CHANGEFEED = Partition("changefeed", 0)


@pytest.fixture
def world() -> World:
    return World()


class TestElection:
    def test_on_an_empty_log_the_first_campaigns_at_once_and_its_announcement_is_owner_rev(self, world: World) -> None:
        one = world.member("one").serve()
        (first_offset, first), (_, second) = world.announced()
        assert first.owner_rev is None
        assert second.owner_rev == first_offset == one.role.status.owner_rev
        assert (first.owner_id, first.lease_seconds) == ("one", LEASE)

    def test_a_new_process_is_a_standby_as_long_as_the_owner_is_heard(self, world: World) -> None:
        one = world.member("one").serve()
        two = world.member("two")
        world.run(4 * LEASE, one, two)
        assert (one.state, two.state) == (RoleState.SERVING, RoleState.STANDBY)
        assert two.role.status.replayed
        assert two.role.status.owner_id == "one"
        assert two.role.digest() == one.role.digest()

    def test_it_takes_over_when_the_lease_has_run_out_since_the_last_record_and_not_before(self, world: World) -> None:
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

    def test_a_resigned_owner_is_followed_at_once(self, world: World) -> None:
        one, two = world.member("one").serve(), world.member("two")
        world.run(1.0, one, two)
        one.role.resign()
        one.turn()
        assert one.state is RoleState.ENDED
        assert world.announced()[-1][1].lease_seconds == 0.0
        two.serve()
        with pytest.raises(RoleEndedError, match="resigned"):
            one.turn()

    def test_a_resignation_that_cannot_be_written_still_ends_the_role(self, world: World) -> None:
        one = world.member("one").serve()
        one.log.cut()
        one.role.resign()
        one.turn()
        assert one.state is RoleState.ENDED

    def test_a_new_process_that_has_not_read_to_the_end_does_not_take_the_throne_for_empty(self, world: World) -> None:
        one, two = world.member("one").serve(), world.member("two")
        two.log.hold(ANNOUNCE, at=0)
        world.run(LEASE - 1.0, one, two)
        two.log.release(ANNOUNCE)
        world.run(2 * LEASE, one, two)
        assert two.role.counters.campaigns == 0

    def test_what_the_last_owner_committed_just_before_init_is_replayed_before_the_throne(
        self, world: World, monkeypatch: pytest.MonkeyPatch
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

    def test_of_two_that_campaign_at_once_the_last_init_wins_and_the_other_waits(self, world: World) -> None:
        one, two = world.member("one"), world.member("two")
        while RoleState.REPLAYING not in (one.state, two.state):
            one.turn()
            two.turn()
        world.run(2.0, one, two)
        assert (one.state, two.state) == (RoleState.STANDBY, RoleState.SERVING)
        world.run(3 * LEASE, one, two)
        assert (one.state, two.state) == (RoleState.STANDBY, RoleState.SERVING)

    def test_an_announcement_read_while_replaying_says_that_a_later_init_has_won(self, world: World) -> None:
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

    def test_a_transaction_left_open_by_a_killed_owner_does_not_keep_the_standby_waiting(self, world: World) -> None:
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

    def test_heartbeats_on_announce_do_not_hide_that_another_topic_is_pinned(self, world: World) -> None:
        one, two = world.member("one").serve(), world.member("two")
        world.run(1.0, one, two)
        world.broker.leave_open(transactional_id(), [Placed(CHANGEFEED, Fact(OutcomeKey("x"), None))])
        world.run(LEASE + 2.0, two, beat=("a1",))
        assert two.state is RoleState.SERVING

    def test_a_replay_that_can_never_end_ends_the_role_with_the_place(self, world: World) -> None:
        world.broker.leave_open("stranger", [Placed(CHANGEFEED, Fact(OutcomeKey("x"), None))])
        one = world.member("one")
        with pytest.raises(RoleEndedError, match="changefeed/0 at 0 of 1"):
            world.run(120.0, one)

    def test_what_a_broker_has_lost_the_end_of_is_ended_once_when_a_campaign_stands_still(
        self, world: World, monkeypatch: pytest.MonkeyPatch
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
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        asked: list[list[Placed]] = []
        monkeypatch.setattr(
            MemoryTransactionalWriter, "end_hanging", lambda _writer, placed: bool(asked.append(placed))
        )
        world.broker.leave_open("stranger", [Placed(CHANGEFEED, Fact(OutcomeKey("x"), None))])
        one = world.member("one")
        world.run(HANGING_SECONDS + HANGING_AGAIN_SECONDS, one)
        assert (one.state, len(asked)) == (RoleState.REPLAYING, 1)
        world.run(HANGING_AGAIN_SECONDS, one)
        assert (one.state, len(asked)) == (RoleState.REPLAYING, 2)

    def test_a_lagging_standby_reads_to_the_end_before_it_believes_in_silence(self, world: World) -> None:
        one, two = world.member("one").serve(), world.member("two")
        world.run(1.0, one, two)
        two.log.hold(ANNOUNCE)
        world.run(LEASE - 0.5, one, two)
        assert two.state is RoleState.STANDBY
        world.run(0.75, one, two)
        two.log.release(ANNOUNCE)
        world.run(2 * LEASE, one, two)
        assert two.role.counters.campaigns == 0


class TestTurns:
    def test_requests_are_settled_and_state_is_what_any_replay_gives(self, world: World) -> None:
        one = world.member("one").serve()
        for name in ("r1", "r2", "r1"):
            world.request(name)
        one.turn()
        assert one.outcomes == {"r1": "number 2", "r2": "number 1"}
        world.run(2.0, one)
        full = world.replayed_digest()
        world.broker.compact_all()
        assert one.role.digest() == full == world.replayed_digest()

    def test_what_a_new_owner_finds_open_is_settled_in_its_own_term(self, world: World) -> None:
        world.request("r1")
        one = world.member("one").serve()
        record = one.role.view.records[OutcomeKey("r1")]
        assert isinstance(record, RequestSettled)
        assert record.owner_rev == one.role.status.owner_rev

    def test_a_turn_is_one_transaction_and_each_decision_sees_the_facts_of_the_one_before(self, world: World) -> None:
        one = world.member("one").serve()
        one.committed.clear()
        for name in ("r1", "r2", "r3"):
            world.request(name)
        one.turn()
        (facts,) = one.committed
        assert [fact.value.reason for fact in facts if isinstance(fact.key, OutcomeKey)] == [
            "number 0",
            "number 1",
            "number 2",
        ]

    def test_an_idle_turn_commits_nothing_and_a_heartbeat_comes_five_times_a_lease(self, world: World) -> None:
        one = world.member("one").serve()
        before = len(world.announced())
        one.turn()
        one.turn()
        assert len(world.announced()) == before
        world.run(10 * LEASE, one)
        assert 48 <= len(world.announced()) - before <= 51

    def test_the_owner_does_not_read_back_what_it_wrote(self, world: World) -> None:
        one = world.member("one").serve()
        world.request("r1")
        world.run(1.0, one)
        arrived = [given.delivery.key.text() for given in one.inputs(Arrived)]
        assert arrived == ["request/r1"]

    def test_effects_run_only_after_the_commit_and_their_results_are_decided(self, world: World) -> None:
        one = world.member("one").serve()
        world.request("r1", OperationKind.CREATE_FEED)
        world.broker.fail_commit(transactional_id(), CommitFault.REFUSED)
        one.turn()
        assert one.effects == []
        one = world.member("other")
        world.run(LEASE + 2.0, one)
        world.request("r2", OperationKind.CREATE_FEED)
        one.turn()
        rev = one.role.status.owner_rev
        assert rev is not None
        assert one.effects == [TermEffect(rev, Resolve("r2"))]
        assert one.role.finish(one.effects[0], "found")
        one.turn()
        assert one.outcomes["r2"] == "result found"

    def test_a_fenced_owner_with_an_effect_but_no_fact_finds_out_before_it_runs_it(self, world: World) -> None:
        one = world.member("one").serve()
        world.broker.fence(transactional_id())
        world.request("r1", OperationKind.CREATE_FEED)
        one.turn()
        assert one.effects == []
        assert one.state is RoleState.WAITING

    def test_a_result_of_an_earlier_term_is_dropped(self, world: World) -> None:
        one = world.member("one").serve()
        world.request("r1", OperationKind.CREATE_FEED)
        one.turn()
        (late,) = one.effects
        world.broker.fence(transactional_id())
        world.run(LEASE + 4.0, one)
        assert one.state is RoleState.SERVING
        assert one.role.status.owner_rev != late.owner_rev
        assert one.role.finish(late, "late")
        one.turn()
        assert one.inputs(EffectFinished) == []

    def test_too_many_results_are_refused_until_a_turn_has_taken_some(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("headgate.eventlog.term.RESULTS_MAX", 1)
        one = world.member("one").serve()
        for name in ("r1", "r2"):
            world.request(name, OperationKind.CREATE_FEED)
        one.turn()
        first, second = one.effects
        assert one.role.finish(first, 1)
        assert not one.role.finish(second, 2)
        one.turn()
        assert one.role.finish(second, 2)
        one.turn()
        assert one.outcomes == {"r1": "result 1", "r2": "result 2"}

    def test_a_full_turn_leaves_the_rest_for_the_next(self, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("headgate.eventlog.term.TURN_FACTS_MAX", 2)
        one = world.member("one").serve()
        for name in ("r1", "r2", "r3"):
            world.request(name)
        one.turn()
        assert sorted(one.outcomes) == ["r1", "r2"]
        one.turn()
        assert sorted(one.outcomes) == ["r1", "r2", "r3"]

    def test_timers_fire_late_never_early_and_can_be_cancelled(self, world: World) -> None:
        one = world.member("one").serve()
        world.request("r1", OperationKind.RESUME_FEED)
        one.turn()
        world.run(TIMER_SECONDS - 0.25, one)
        assert one.inputs(TimerFired) == []
        world.run(0.25, one)
        assert one.outcomes == {"r1": "timer"}
        world.request("r2", OperationKind.RESUME_FEED)
        one.turn()
        world.request("r3", OperationKind.REMOVE_FEED)
        world.run(2 * TIMER_SECONDS, one)
        assert one.outcomes == {"r1": "timer"}

    def test_timers_die_with_their_term(self, world: World) -> None:
        one = world.member("one").serve()
        world.request("r1", OperationKind.RESUME_FEED)
        one.turn()
        world.broker.fence(transactional_id())
        world.run(LEASE + 4.0, one)
        assert one.state is RoleState.SERVING
        assert one.inputs(TimerFired) == []
        assert len(one.inputs(Enthroned)) == 1

    def test_the_pause_is_until_the_next_thing_due(self, world: World) -> None:
        one = world.member("one").serve()
        world.run(1.0, one)
        pauses = []
        for _ in range(20):
            pauses.append(one.turn())
            world.clock += pauses[-1]
        assert max(pauses) <= 0.25
        assert sum(pauses) > 2.0, "an idle owner does not spin"

    def test_waiting_keeps_what_it_reads_for_the_next_turn(self, world: World) -> None:
        one = world.member("one")
        assert not one.role.wait(0.0), "nothing to wait on before the first turn"
        one.serve()
        world.request("r1")
        assert one.role.wait(1.0)
        assert one.outcomes == {}
        one.turn()
        assert one.outcomes == {"r1": "number 0"}


class TestFalls:
    @pytest.mark.parametrize("fault", list(CommitFault))
    def test_a_commit_that_does_not_return_costs_the_state_and_a_replay_says_what_happened(
        self, world: World, fault: CommitFault
    ) -> None:
        one = world.member("one").serve()
        world.broker.fail_commit(transactional_id(), fault)
        world.request("r1")
        one.turn()
        assert one.state is RoleState.WAITING
        assert one.outcomes == {}
        assert one.role.status.owner_rev is None
        world.run(LEASE + 4.0, one)
        assert one.state is RoleState.SERVING
        applied = fault is CommitFault.UNCERTAIN_APPLIED
        assert one.outcomes == {"r1": "number 0" if applied else "found open"}
        assert one.role.digest() == world.replayed_digest()

    def test_back_off_grows_and_ends_with_success(self, world: World) -> None:
        one = world.member("one")
        one.log.cut()
        falls = []
        for _ in range(200):
            before = one.role.counters.falls
            one.turn()
            if one.role.counters.falls > before:
                falls.append(world.clock)
            world.clock += 0.1
        pauses = [round(b - a, 1) for a, b in itertools.pairwise(falls)]
        assert pauses[: len(BACKOFF_SECONDS)] == list(BACKOFF_SECONDS)
        assert set(pauses[len(BACKOFF_SECONDS) :]) == {BACKOFF_SECONDS[-1]}
        one.log.heal()
        world.run(10.0, one)
        assert one.state is RoleState.SERVING
        one.log.cut()
        one.turn()
        one.log.heal()
        world.run(BACKOFF_SECONDS[0] + 0.05, one, step=0.05)
        assert one.state is RoleState.STANDBY

    def test_the_log_failing_while_waiting_is_told_in_the_turn(self, world: World) -> None:
        one = world.member("one").serve()
        one.log.cut()
        assert one.role.wait(1.0)
        one.turn()
        assert one.state is RoleState.WAITING
        assert "cannot be reached" in (one.role.status.last_error or "")

    def test_an_owner_that_was_frozen_beyond_its_lease_forgets_and_follows_the_new_one(self, world: World) -> None:
        one, two = world.member("one").serve(), world.member("two")
        world.run(1.0, one, two)
        world.run(LEASE + 3.0, two)
        world.request("r1")
        two.turn()
        one.turn()  # thawed
        assert one.state is RoleState.STANDBY
        world.run(2 * LEASE, one, two)
        assert (one.state, two.state) == (RoleState.STANDBY, RoleState.SERVING)
        assert one.role.counters.campaigns == 1
        assert one.role.digest() == two.role.digest()

    def test_a_standby_that_was_frozen_does_not_take_its_own_gap_for_the_owners_silence(self, world: World) -> None:
        one, two = world.member("one").serve(), world.member("two")
        world.run(1.0, one, two)
        two.log.hold(ANNOUNCE)
        world.run(3 * LEASE, one)
        world.run(1.0, one, two)
        two.log.release(ANNOUNCE)
        world.run(2 * LEASE, one, two)
        assert two.role.counters.campaigns == 0
        assert two.role.counters.falls == 1

    def test_a_later_owner_seen_on_announce_ends_the_term_before_anything_is_written(self, world: World) -> None:
        one = world.member("one").serve()
        world.request("r1")
        later = OwnerAnnounced(
            owner_id="two",
            owner_rev=(one.role.status.owner_rev or 0) + 100,
            version="0.1.0",
            schema_version=1,
            lease_seconds=LEASE,
            announced_ms=0,
        )
        world.write(ANNOUNCE, Fact(OwnerKey(0), later))
        commits = one.role.counters.commits
        one.turn()
        assert one.state is RoleState.WAITING
        assert one.role.counters.commits == commits

    def test_garbage_is_reported_with_its_place_counted_and_changes_nothing(
        self, world: World, caplog: pytest.LogCaptureFixture
    ) -> None:
        one = world.member("one").serve()
        offset = world.broker.append_garbage(CHANGEFEED, "request/bad", "no Avro")
        world.request("r1")
        one.turn()
        assert one.outcomes == {"r1": "number 0"}
        assert one.role.counters.garbage == {"changefeed": 1}
        two = world.member("two")
        world.run(1.0, one, two)
        # Once live, once in replay, and the same both times.
        assert caplog.messages == [f"changefeed/0 at {offset} is skipped: no Avro"] * 2
        assert two.role.counters.garbage == {"changefeed": 1}
        assert two.role.digest() == one.role.digest()

    @pytest.mark.parametrize("waits", [True, False])
    def test_a_newer_schema_ends_the_role_without_a_word(self, world: World, waits: bool) -> None:
        one = world.member("one").serve()
        one.turn()
        world.broker.append_newer(CHANGEFEED, "request/new", "schema 1902 is unknown")
        end = world.broker.end_offset(ANNOUNCE)
        if waits:
            one.role.wait(0.1)
        with pytest.raises(RoleEndedError, match="schema 1902"):
            one.turn()
        assert one.state is RoleState.ENDED
        assert world.broker.end_offset(ANNOUNCE) == end


class TestSessions:
    def test_a_session_without_heartbeat_for_a_lease_is_silent_once(self, world: World) -> None:
        one = world.member("one").serve()
        world.run(2.0, one, beat=("a1", "a2"))
        world.run(AGENT_LEASE - 0.5, one, beat=("a2",))
        assert one.inputs(HolderSilent) == []
        world.run(AGENT_LEASE, one, beat=("a2",))
        assert one.inputs(HolderSilent) == [HolderSilent("a1", "s1")]
        assert SessionKey("a1", "s1") in one.role.view.records
        assert AgentKey("a1", "s1") not in one.role.view.records
        assert one.role.digest() == world.replayed_digest()

    def test_silence_is_judged_only_after_reading_to_an_end_captured_after_the_suspicion(self, world: World) -> None:
        one = world.member("one").serve()
        world.run(1.0, one, beat=("a1",))
        world.beat("a2")
        world.run(1.0, one)
        one.log.hold(ANNOUNCE)  # the owner lags; the agents live
        world.run(2 * AGENT_LEASE, one, beat=("a1", "a2"))
        assert one.inputs(HolderSilent) == []
        assert one.turn() > 0, "judging does not spin"
        one.log.release(ANNOUNCE)
        world.run(2.0, one, beat=("a1", "a2"))
        assert one.inputs(HolderSilent) == []
        world.run(AGENT_LEASE + 0.5, one, beat=("a2",))
        assert one.inputs(HolderSilent) == [HolderSilent("a1", "s1")]

    def test_a_heartbeat_read_but_left_for_the_next_turn_counts(
        self, world: World, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("headgate.eventlog.candidate.TURN_RECORDS_MAX", 4)
        monkeypatch.setattr("headgate.eventlog.term.TURN_FACTS_MAX", 1)
        one = world.member("one").serve()
        world.run(1.0, one, beat=("a1",))
        world.run(AGENT_LEASE - 0.5, one)
        for _ in range(4):
            world.beat("a2")
        one.turn()  # fills its batch from announce, so the next one begins with the other topics
        world.clock += 1.0
        for name in ("r1", "r2", "r3"):
            world.request(name)
        world.beat("a1")
        for _ in range(5):
            one.turn()
        assert sorted(one.outcomes) == ["r1", "r2", "r3"]
        assert one.inputs(HolderSilent) == []

    def test_a_new_owner_gives_every_known_session_a_full_lease(self, world: World) -> None:
        one, two = world.member("one").serve(), world.member("two")
        world.run(1.0, one, two, beat=("a1",))
        world.run(LEASE + 1.0, two)
        assert two.state is RoleState.SERVING
        world.run(AGENT_LEASE - 1.0, two)
        assert two.inputs(HolderSilent) == []
        world.run(2.0, two)
        assert two.inputs(HolderSilent) == [HolderSilent("a1", "s1")]

    def test_what_a_dead_session_still_writes_does_not_bring_it_back(self, world: World) -> None:
        one = world.member("one").serve()
        world.run(1.0, one, beat=("a1",))
        world.run(AGENT_LEASE + 1.0, one)
        world.run(2.0, one, beat=("a1",))
        world.run(2 * AGENT_LEASE, one)
        assert one.inputs(HolderSilent) == [HolderSilent("a1", "s1")]

    def test_a_session_whose_announcement_is_deleted_is_not_watched(self, world: World) -> None:
        one = world.member("one").serve()
        world.run(1.0, one, beat=("a1",))
        world.write(ANNOUNCE, Fact(AgentKey("a1", "s1"), None))
        world.run(2 * AGENT_LEASE, one)
        assert one.inputs(HolderSilent) == []


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
