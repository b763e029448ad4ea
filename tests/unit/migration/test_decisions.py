"""What the owner of migrations decides in cases that take several records and processes to come about."""

from typing import Any

import pytest

from headgate.eventlog.log import Delivery, Partition
from headgate.migration.core import effects as fx
from headgate.migration.core.approvals import LEVEL
from headgate.migration.core.machine import MIGRATIONS
from headgate.migration.core.scheduling import RUNNING_MAX, STALE_SECONDS
from headgate.migration.core.spec import MigrationSpec, written
from headgate.migration.core.state import MigrationsState
from headgate.records.base import Key, Record
from headgate.records.control import OutcomeStatus, OwnerAnnounced
from headgate.records.migration import (
    Artifact,
    MigrationApprovalKey,
    MigrationKey,
    MigrationOutcomeKey,
    MigrationOwnerKey,
    MigrationRecorded,
    MigrationRequested,
    MigrationRequestKey,
    MigrationRequestKind,
    MigrationState,
    MigrationStrategy,
)
from headgate.runtime.machine import (
    Arrived,
    CancelTimer,
    Decision,
    EffectFailed,
    EffectFinished,
    NoTermError,
    Now,
    SetTimer,
    TermBegan,
    TimerFired,
)
from support.migration_records import recorded

NOW_MS = 1_000_000_000
OLD = (Artifact("table", "_items_old"),)


def spec(**more: Any) -> MigrationSpec:
    given: dict[str, Any] = {"statement": "ALTER TABLE items ADD c int", "database": "db"}
    return MigrationSpec(**given | {"strategy": MigrationStrategy.ONLINE} | more)


def migration(state: MigrationState = MigrationState.RUNNING, of: MigrationSpec | None = None, **more: Any) -> Any:
    """A record; what has ended has just ended, long enough after its start."""
    times = {"started_ms": 1, "ended_ms": NOW_MS} if state is MigrationState.COMPLETE else {}
    return recorded(written(of or spec()), **({"state": state, "server": "s1"} | times | more))


class Owner:
    """One term of an owner over records that are on the log already."""

    def __init__(self, **migrations: MigrationRecorded) -> None:
        self.state: MigrationsState = MIGRATIONS.new_state(0)
        self.state.level = LEVEL
        self.now = 0.0
        self._offset = 0
        for name, record in migrations.items():
            MIGRATIONS.evolve(self.state, MigrationKey(name), record)
        self.begun = self.given(TermBegan(7))

    def given(self, what: Any) -> Decision:
        decision = MIGRATIONS.decide(self.state, what, Now(self.now, NOW_MS + round(1_000 * self.now)))
        for fact in decision.facts:
            MIGRATIONS.evolve(self.state, fact.key, fact.value)
        return decision

    def written(self, key: Key, value: Record | None) -> Decision:
        """A record of another process, and what follows from it."""
        self._offset += 1
        MIGRATIONS.evolve(self.state, key, value, self._offset)
        return self.given(Arrived(Delivery(Partition(key.topic, 0), self._offset, key, value)))

    def request(self, kind: MigrationRequestKind, name: str, request: str = "r1", **more: Any) -> Decision:
        fields = {"spec": None, "throttle_ratio": None, "expires_seconds": None, "requested_by": "ann"} | more
        return self.written(MigrationRequestKey(request), MigrationRequested(kind, name, requested_ms=1, **fields))

    def submit(self, name: str, of: MigrationSpec, request: str = "r1") -> Decision:
        return self.request(MigrationRequestKind.SUBMIT, name, request, spec=written(of))

    def outcome(self, request: str = "r1") -> tuple[OutcomeStatus, str] | None:
        found = self.state.outcomes.get(request)
        return None if found is None else (found.status, found.reason)

    def record(self, name: str = "m1") -> MigrationRecorded:
        return self.state.migrations[name]

    def tick(self) -> Decision:
        return self.given(TimerFired("tick/"))


def effects(decision: Decision) -> list[Any]:
    return [effect for effect in decision.effects if not isinstance(effect, SetTimer | CancelTimer)]


def timers(decision: Decision) -> dict[str, float]:
    return {effect.name: effect.delay_seconds for effect in decision.effects if isinstance(effect, SetTimer)}


def the_effect(decision: Decision) -> Any:
    (found,) = effects(decision)
    return found


def examined(table: str = "items", server: str = "s1") -> fx.Examined:
    return fx.Examined("alter", table, server, is_immediate=False)


# --- inputs ---


def test_nothing_is_decided_before_a_term_begins() -> None:
    with pytest.raises(NoTermError):
        MIGRATIONS.decide(MIGRATIONS.new_state(0), TimerFired("tick/"), Now(0.0, 0))


def test_records_that_are_no_request_change_nothing() -> None:
    announced = OwnerAnnounced("other", 3, "1", 1, 5.0, 1)
    assert Owner().written(MigrationOwnerKey(0), announced) == Decision()


@pytest.mark.parametrize("key", [MigrationRequestKey("r1"), MigrationApprovalKey("r1")])
def test_a_request_that_is_gone_again_is_not_answered(key: Any) -> None:
    gone = MigrationRequested(MigrationRequestKind.APPROVE, "m1", None, None, None, "ann", 1)
    assert Owner().given(Arrived(Delivery(Partition(key.topic, 0), 1, key, gone))) == Decision()


def test_an_effect_that_is_not_out_cannot_come_back() -> None:
    owner = Owner(m1=migration(MigrationState.READY))
    with pytest.raises(TypeError, match="StartMigration of m1 has come back, but was not out"):
        owner.given(EffectFinished(fx.StartMigration("m1", owner.record()), fx.NotThere()))


def test_a_clean_up_ends_by_a_clean_up_alone() -> None:
    owner = Owner(m1=migration(MigrationState.FAILED, artifacts=OLD))
    clean = the_effect(owner.tick())
    with pytest.raises(TypeError, match="a clean-up cannot end with NotThere"):
        owner.given(EffectFinished(clean, fx.NotThere()))


# --- submissions ---


def test_a_submission_that_is_withdrawn_while_it_is_examined_is_not_accepted() -> None:
    owner = Owner()
    examine = the_effect(owner.submit("m1", spec()))
    owner.written(MigrationRequestKey("r1"), None)
    assert owner.given(EffectFinished(examine, examined())).facts == ()
    assert not owner.state.migrations


def test_a_request_that_was_answered_otherwise_while_it_is_examined_is_not_accepted() -> None:
    owner = Owner()
    examine = the_effect(owner.submit("m1", spec()))
    owner.request(MigrationRequestKind.SUBMIT, "m1", spec="{")
    owner.given(EffectFinished(examine, examined()))
    assert owner.outcome()[0] is OutcomeStatus.REFUSED  # type: ignore[index]
    assert not owner.state.migrations


def test_one_id_under_two_names_of_a_database_is_one_migration() -> None:
    owner = Owner()
    first = the_effect(owner.submit("m1", spec(), "r1"))
    second = the_effect(owner.submit("m1", spec(database="alias"), "r2"))
    owner.given(EffectFinished(first, examined()))
    asked = the_effect(owner.given(EffectFinished(second, examined())))
    assert asked.is_known
    owner.given(EffectFinished(asked, fx.Identified("s1")))
    assert owner.outcome("r2") == (OutcomeStatus.DONE, "is queued already")


def test_the_pause_of_one_examination_does_not_end_that_of_another() -> None:
    owner = Owner()
    for request, database in (("r1", "a"), ("r2", "b")):
        examine = the_effect(owner.submit(f"m-{database}", spec(database=database), request))
        owner.given(EffectFinished(examine, EffectFailed("away")))
    again = effects(owner.given(TimerFired("examine/r1")))
    assert [effect.request for effect in again] == ["r1"]


@pytest.mark.parametrize(
    ("known", "options", "why"),
    [
        (migration(server="", of=spec(context="a")), {"singleton": True}, "singleton: m1 is running"),
        (migration(server="", of=spec(database="else")), {"singleton": True}, ""),
        (migration(of=spec(context="a")), {"context": "b"}, ""),
        (migration(of=spec(context="a")), {"context": "b", "singleton_context": True}, "singleton_context: m1 of"),
        (migration(of=spec(context="a", reverts="m0")), {"context": "b", "singleton_context": True}, ""),
    ],
)
def test_what_a_singleton_cannot_run_beside(known: MigrationRecorded, options: dict[str, Any], why: str) -> None:
    owner = Owner(m1=known)
    owner.given(EffectFinished(the_effect(owner.submit("m2", spec(**options))), examined("others")))
    status, reason = owner.outcome() or (None, "")
    assert status is (OutcomeStatus.REFUSED if why else OutcomeStatus.DONE)
    assert reason.startswith(why)


# --- approvals ---


@pytest.mark.parametrize(
    ("known", "said"),
    [
        ({"state": MigrationState.CANCELLED}, "m1 is cancelled: it waits for no approval"),
        ({"state": MigrationState.READY}, "m1 is ready: it waits for no approval"),
        (
            {"state": MigrationState.READY, "approved_by": "bob"},
            "m1 is ready, approved by bob: it waits for no approval",
        ),
    ],
)
def test_an_approval_that_nothing_waits_for_is_refused(known: dict[str, Any], said: str) -> None:
    owner = Owner(m1=migration(**known))
    approval = MigrationRequested(MigrationRequestKind.APPROVE, "m1", None, None, None, "carol", 1)
    owner.written(MigrationApprovalKey("r1"), approval)
    assert owner.outcome() == (OutcomeStatus.REFUSED, said)


# --- reverts ---


def reverting(owner: Owner, request: str = "r1") -> Decision:
    asked = written(spec(statement="revert m1", reverts="m1"))
    return owner.request(MigrationRequestKind.REVERT, "back", request, spec=asked)


@pytest.mark.parametrize(
    ("was", "now", "why"), [("s1", "s1", ""), ("s1", "s2", "m1 has changed another database (s1; db is s2 now)"),
                            ("", "s2", "")]
)  # fmt: skip
def test_a_revert_is_done_at_the_database_of_the_change(was: str, now: str, why: str) -> None:
    owner = Owner(m1=migration(MigrationState.COMPLETE, artifacts=OLD, server=was))
    owner.given(EffectFinished(the_effect(reverting(owner)), examined(server=now)))
    status, reason = owner.outcome() or (None, "")
    assert (status, reason) == ((OutcomeStatus.REFUSED, why) if why else (OutcomeStatus.DONE, reason))


def test_what_an_operator_wants_cleaned_up_cannot_be_reverted_while_that_is_retried() -> None:
    owner = Owner(m1=migration(MigrationState.COMPLETE, artifacts=OLD))
    owner.request(MigrationRequestKind.CLEANUP, "m1", "r1")
    clean = the_effect(owner.tick())
    owner.given(EffectFinished(clean, EffectFailed("away")))
    reverting(owner, "r2")
    assert owner.outcome("r2") == (OutcomeStatus.REFUSED, "m1 is being cleaned up")


def test_a_revert_is_refused_by_what_was_accepted_just_before_it() -> None:
    owner = Owner(m1=migration(MigrationState.COMPLETE, artifacts=OLD))
    examine = the_effect(owner.submit("m2", spec(context="x"), "r1"))
    assert effects(reverting(owner, "r2")) == []
    owner.given(EffectFinished(examine, examined()))
    assert owner.outcome("r2") == (OutcomeStatus.REFUSED, "m2 of the same table is queued")


# --- requests of operators ---


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (MigrationRequestKind.CANCEL, (OutcomeStatus.DONE, "cancelled")),
        (MigrationRequestKind.LAUNCH, (OutcomeStatus.DONE, "launch of 0 migrations")),
        (MigrationRequestKind.CLEANUP, (OutcomeStatus.DONE, "nothing of it is left")),
    ],
)
def test_all_of_no_migration_is_done(kind: MigrationRequestKind, said: tuple[OutcomeStatus, str]) -> None:
    owner = Owner()
    owner.request(kind, "all")
    assert owner.outcome() == said


def test_a_clean_up_of_all_leaves_what_is_pending() -> None:
    owner = Owner(
        m1=migration(MigrationState.QUEUED, launch_postponed=True, artifacts=OLD, table="others"),
        m2=migration(MigrationState.COMPLETE, artifacts=OLD),
    )
    owner.request(MigrationRequestKind.CLEANUP, "all")
    clean = the_effect(owner.tick())
    assert (clean.migration, owner.outcome()) == ("m2", (OutcomeStatus.ACCEPTED, "the artifacts are being dropped"))
    owner.given(EffectFinished(clean, fx.CleanedUp()))
    assert owner.outcome() == (OutcomeStatus.DONE, "nothing of it is left"), "it does not wait for what is pending"


def test_a_cancel_of_all_is_done_though_one_came_too_late() -> None:
    owner = Owner(m1=migration(), m2=migration(table="others", sequence=2))
    for adopt in effects(owner.begun):
        owner.given(EffectFinished(adopt, fx.Progressed("copying")))
    owner.request(MigrationRequestKind.CANCEL, "all")
    first, second = (owner.state.term.busy[name] for name in ("m1", "m2"))  # type: ignore[union-attr]
    owner.given(EffectFinished(first, fx.Completed("it was in force already")))
    assert owner.outcome() == (OutcomeStatus.ACCEPTED, "it is being stopped")
    owner.given(EffectFinished(second, fx.Stopped()))
    assert owner.outcome() == (OutcomeStatus.DONE, "cancelled")


@pytest.mark.parametrize("state", [MigrationState.COMPLETE, MigrationState.RUNNING, MigrationState.QUEUED])
def test_what_has_not_failed_is_not_retried(state: MigrationState) -> None:
    owner = Owner(m1=migration(state))
    assert [fact.key for fact in owner.request(MigrationRequestKind.RETRY, "m1").facts] == [MigrationOutcomeKey("r1")]
    why = f"m1 is {state} already: only a failed or cancelled migration can be retried"
    assert owner.outcome() == (OutcomeStatus.REFUSED, why)


def test_a_throttle_ends_at_its_time_whatever_the_clock_of_the_owner_that_set_it() -> None:
    until_ms = NOW_MS + 60_000
    held = migration(MigrationState.QUEUED, launch_postponed=True, throttle_ratio=1.0, throttle_until_ms=until_ms)
    owner = Owner(m1=held, m2=migration(MigrationState.QUEUED, launch_postponed=True, throttle_ratio=1.0))
    assert {name: wait for name, wait in timers(owner.begun).items() if "throttle" in name} == {"unthrottle/m1": 60.0}
    owner.now = 45.0
    assert timers(owner.given(TimerFired("unthrottle/m1"))) == {"unthrottle/m1": 15.0}
    assert owner.record().throttle_ratio == 1.0
    owner.now = 60.0
    owner.given(TimerFired("unthrottle/m1"))
    assert (owner.record("m1").throttle_ratio, owner.record("m2").throttle_ratio) == (0.0, 1.0)


# --- a new owner ---


def test_the_throttle_of_what_has_ended_needs_no_end() -> None:
    until = {"throttle_ratio": 1.0, "throttle_until_ms": NOW_MS + 5_000}
    owner = Owner(m1=migration(MigrationState.CANCELLED, **until), m2=migration(MigrationState.QUEUED, **until))
    assert [name for name in timers(owner.begun) if name.startswith("unthrottle/")] == ["unthrottle/m2"]


@pytest.mark.parametrize("ratio", [0.5, 5.0])
def test_a_ratio_matters_to_throttles_only(ratio: float) -> None:
    owner = Owner(m1=migration(MigrationState.QUEUED, of=spec(strategy=MigrationStrategy.PT_OSC)))
    for request, kind in (("r1", MigrationRequestKind.LAUNCH), ("r2", MigrationRequestKind.THROTTLE)):
        owner.request(kind, "m1", request, throttle_ratio=ratio)
    assert owner.outcome("r1") == (OutcomeStatus.DONE, "launch of 1 migration")
    assert (owner.outcome("r2") or ("",))[0] is OutcomeStatus.REFUSED


def test_a_new_owner_drops_nothing_for_requests_that_are_over_or_did_not_ask_for_it() -> None:
    """A cancel that is accepted leaves artifacts for a day; a clean-up that is done is not done again."""
    before = Owner(
        m1=migration(MigrationState.FAILED, artifacts=OLD, ended_ms=NOW_MS),
        m2=migration(table="others", sequence=2),
    )
    before.request(MigrationRequestKind.CLEANUP, "m1", "r1")
    before.given(EffectFinished(the_effect(before.tick()), fx.CleanedUp()))
    before.request(MigrationRequestKind.CANCEL, "m2", "r2")
    assert [before.outcome(name)[0] for name in ("r1", "r2")] == [OutcomeStatus.DONE, OutcomeStatus.ACCEPTED]  # type: ignore[index]
    MIGRATIONS.evolve(
        before.state, MigrationKey("m1"), migration(MigrationState.FAILED, artifacts=OLD, ended_ms=NOW_MS, owner_rev=7)
    )
    stop = the_effect(before.given(TermBegan(8)))
    before.given(EffectFinished(stop, fx.Stopped(OLD)))
    assert before.record("m2").state is MigrationState.CANCELLED
    assert effects(before.tick()) == []


def test_what_is_ending_is_not_begun_again_when_its_adoption_finds_nothing() -> None:
    owner = Owner(m1=migration())
    adopt = the_effect(owner.begun)
    owner.request(MigrationRequestKind.CANCEL, "m1")
    assert isinstance(the_effect(owner.given(EffectFinished(adopt, fx.NotThere()))), fx.StopMigration)


def test_one_effect_at_a_time_also_after_one_that_could_not_be_done() -> None:
    owner = Owner(m1=migration(of=spec(strategy=MigrationStrategy.PT_OSC), state=MigrationState.READY))
    start = the_effect(owner.tick())
    assert timers(owner.given(EffectFinished(start, EffectFailed("away"))))["again/m1"] > 0
    watch = the_effect(owner.given(fx.ToolReported("m1", fx.ToolStatus.COMPLETE)))
    assert effects(owner.given(TimerFired("again/m1"))) == []
    owner.given(EffectFinished(watch, EffectFailed("away")))
    assert isinstance(the_effect(owner.given(TimerFired("again/m1"))), fx.AdoptMigration)


# --- the cut-over ---


READY: dict[str, Any] = {"is_ready_to_complete": True, "was_ready": True, "stage": "ready to cut over"}


def test_nothing_is_cut_over_whose_last_cut_over_may_still_be_under_way() -> None:
    """A look that fails does not tell how it has ended."""
    owner = Owner(m1=migration(of=spec(strategy=MigrationStrategy.GH_OST), state=MigrationState.READY))
    owner.given(EffectFinished(the_effect(owner.tick()), fx.Progressed("copying")))
    ready = fx.ToolReported("m1", fx.ToolStatus.RUNNING, "ready", is_ready_to_complete=True)
    owner.given(EffectFinished(the_effect(owner.given(ready)), EffectFailed("away")))
    watch = the_effect(owner.given(fx.ToolReported("m1", fx.ToolStatus.COMPLETE)))
    owner.given(EffectFinished(watch, EffectFailed("away")))
    assert effects(owner.given(ready)) == []


@pytest.mark.parametrize("kind", [MigrationRequestKind.COMPLETE, MigrationRequestKind.FORCE_CUTOVER])
def test_what_is_ending_is_not_cut_over(kind: MigrationRequestKind) -> None:
    owner = Owner(m1=migration(ending=MigrationState.CANCELLED, **READY))
    owner.given(EffectFinished(the_effect(owner.begun), EffectFailed("away")))
    assert effects(owner.request(kind, "m1")) == []


def test_the_time_after_which_it_is_forced_counts_from_when_only_the_cut_over_is_missing() -> None:
    known = migration(of=spec(force_cutover_after_seconds=60.0), cutover_after_ms=NOW_MS + 1_000, **READY)
    owner = Owner(m1=known)
    adopted = EffectFinished(the_effect(owner.begun), fx.Progressed("ready to cut over", is_ready_to_complete=True))
    assert effects(owner.given(adopted)) == []
    assert not owner.record().cutover_forced


def test_what_a_former_attempt_has_left_is_not_cleaned_up_before_the_next_one() -> None:
    owner = Owner(m1=migration(MigrationState.QUEUED, launch_postponed=True, artifacts=OLD))
    assert effects(owner.tick()) == []


def test_no_more_migrations_run_at_a_time_than_allowed() -> None:
    running = {f"m{number}": migration(server=f"s{number}", sequence=number) for number in range(RUNNING_MAX)}
    owner = Owner(**running, last=migration(MigrationState.READY, server="free", sequence=RUNNING_MAX))
    assert [effect for effect in effects(owner.tick()) if isinstance(effect, fx.StartMigration)] == []
    stopped = EffectFinished(owner.state.term.busy["m0"], fx.Completed(""))  # type: ignore[union-attr]
    owner.given(stopped)
    assert the_effect(owner.tick()).migration == "last"


def test_what_is_still_ending_is_not_retried_and_keeps_nothing_else_from_it() -> None:
    failed = {"owner_failed": True}
    ending = migration(ending=MigrationState.FAILED, **failed)
    owner = Owner(m1=ending, m2=migration(MigrationState.FAILED, sequence=2, server="s2", **failed))
    owner.tick()
    assert (owner.record("m1").state, owner.record("m2").retries) == (MigrationState.RUNNING, 1)


@pytest.mark.parametrize(
    ("before", "of"),
    [
        (MigrationState.FAILED, spec(context="c")),
        (MigrationState.CANCELLED, spec(context="c")),
        (MigrationState.COMPLETE, spec(context="c", statement="revert m0", reverts="m0")),
    ],
)
def test_what_was_not_done_or_is_a_revert_is_no_duplicate(before: MigrationState, of: MigrationSpec) -> None:
    owner = Owner(m1=migration(before, of=of), m2=migration(MigrationState.READY, of=of, sequence=2))
    assert the_effect(owner.tick()).migration == "m2"
    assert owner.record("m2").state is MigrationState.RUNNING


# --- progress ---


@pytest.mark.parametrize(
    ("known", "seen", "is_stale"),
    [
        ({}, {"rows_copied": 1}, True),
        ({}, {"rows_copied": 2}, False),
        ({}, {"rows_copied": 2, "is_live": False}, True),
        ({}, {"rows_copied": 1, "position": "1"}, False),
        ({}, {"rows_copied": 1, "is_working": True}, False),
        ({}, {"rows_copied": 1, "is_held": True}, False),
        ({"throttle_ratio": 1.0}, {"rows_copied": 1}, False),
        ({"throttle_ratio": 0.9}, {"rows_copied": 1}, True),
        ({"completion_postponed": True}, {"rows_copied": 1, "is_ready_to_complete": True}, False),
    ],
)
def test_what_makes_no_progress_for_too_long_is_stale(
    known: dict[str, Any], seen: dict[str, Any], is_stale: bool
) -> None:
    owner = Owner(m1=migration(**known))
    owner.given(EffectFinished(the_effect(owner.begun), fx.Progressed("copying", rows_copied=1)))
    for owner.now in (STALE_SECONDS - 1, STALE_SECONDS + 1):
        watch = the_effect(owner.given(TimerFired("watch/m1")))
        owner.given(EffectFinished(watch, fx.Progressed("copying", **seen)))
        owner.tick()
    assert (owner.record().ending is MigrationState.FAILED) is is_stale


def test_what_has_moved_since_it_was_last_live_makes_progress() -> None:
    owner = Owner(m1=migration())
    owner.given(EffectFinished(the_effect(owner.begun), fx.Progressed("copying", rows_copied=1)))
    for owner.now, is_live in ((STALE_SECONDS - 1, False), (STALE_SECONDS + 1, True)):
        watch = the_effect(owner.given(TimerFired("watch/m1")))
        owner.given(EffectFinished(watch, fx.Progressed("copying", rows_copied=2, is_live=is_live)))
    owner.tick()
    assert owner.record().ending is None


def test_a_percentage_of_unknown_rows_does_not_change_how_many_are_copied() -> None:
    owner = Owner(m1=migration(of=spec(strategy=MigrationStrategy.GH_OST), state=MigrationState.READY))
    owner.given(EffectFinished(the_effect(owner.tick()), fx.Progressed("copying", rows_copied=10)))
    owner.given(fx.ToolReported("m1", fx.ToolStatus.RUNNING, "more", progress_percent=50.0))
    assert (owner.record().stage, owner.record().rows_copied) == ("more", 10)


# --- the same id once more ----------------------------------------------------------------------------------------


def submitted_again(before: MigrationRecorded, again: MigrationSpec) -> tuple[OutcomeStatus, str, MigrationState]:
    """The answer to m1 that is submitted again, and m1's state then."""
    owner = Owner(m1=before)
    for effect in effects(owner.submit("m1", again)):
        assert effect.is_known
        owner.given(EffectFinished(effect, fx.Identified("s1")))
    outcome = owner.outcome()
    assert outcome is not None
    return *outcome, owner.record().state


@pytest.mark.parametrize("state", [MigrationState.FAILED, MigrationState.CANCELLED])
def test_what_has_failed_is_retried_as_it_was_submitted_only(state: MigrationState) -> None:
    before = migration(state)
    assert submitted_again(before, spec())[:2] == (OutcomeStatus.DONE, f"was {state}, is retried")
    status, message, after = submitted_again(before, spec(allow_lossy=("c",), prefer_instant=True))
    assert (status, after) == (OutcomeStatus.REFUSED, state)
    assert message == (
        f"m1 is {state}, and was submitted with other options (allow_lossy, prefer_instant). To try it again as it "
        "was, run `headgate migration retry m1`; for other options give another --id"
    )


def test_a_name_of_the_database_and_what_an_owner_has_found_are_no_options() -> None:
    declared = {"declarative": True, "statement": "CREATE TABLE items (id int PRIMARY KEY)"}
    before = migration(MigrationState.FAILED, spec(**declared, found="ALTER TABLE items ADD c int"))
    assert submitted_again(before, spec(**declared, database="other"))[0] is OutcomeStatus.DONE


@pytest.mark.parametrize(
    "changed", [{"declarative": True}, {"context": "c"}, {"statement": "ALTER TABLE items ADD d int"}]
)
def test_another_change_under_an_id_is_refused(changed: dict[str, Any]) -> None:
    status, message, _ = submitted_again(migration(MigrationState.COMPLETE), spec(**changed))
    assert status is OutcomeStatus.REFUSED
    assert message.startswith("m1 is another migration already ('ALTER TABLE items ADD c int'")


@pytest.mark.parametrize(
    ("by", "said"),
    [
        ("ann@laptop (pid 7)", ""),
        ("bob@laptop (pid 7)", ", submitted by ann@host (pid 1)"),
        ("", ", submitted by ann@host (pid 1)"),
    ],
)
@pytest.mark.parametrize(
    ("state", "wanted"),
    [(MigrationState.COMPLETE, "is complete already"), (MigrationState.FAILED, "was failed, is retried")],
)
def test_another_user_reads_whose_migration_it_is(state: MigrationState, wanted: str, by: str, said: str) -> None:
    owner = Owner(m1=migration(state, submitted_by="ann@host (pid 1)"))
    submitted = owner.request(MigrationRequestKind.SUBMIT, "m1", spec=written(spec()), requested_by=by)
    owner.given(EffectFinished(the_effect(submitted), fx.Identified("s1")))
    assert owner.outcome() == (OutcomeStatus.DONE, wanted + said)


# --- the state that a table is to be in -----------------------------------------------------------------------------


WANTED = {"statement": "CREATE TABLE items (id int)", "declarative": True}


@pytest.mark.parametrize("has_nothing_to_do", [False, True])
@pytest.mark.parametrize(
    ("earlier", "on"),
    [
        ({"launch_postponed": True}, MigrationRequestKind.LAUNCH),
        ({"completion_postponed": True, "is_immediate": True}, MigrationRequestKind.COMPLETE),
    ],
)
def test_a_wanted_table_waits_for_earlier_changes_that_are_still_queued(
    earlier: dict[str, Any], on: MigrationRequestKind, *, has_nothing_to_do: bool
) -> None:
    """They would begin after it, and the table would not be as wanted in the end."""
    queued = migration(MigrationState.QUEUED, sequence=1, **earlier)
    wanted = migration(MigrationState.READY, spec(**WANTED), sequence=2, has_nothing_to_do=has_nothing_to_do)
    owner = Owner(m1=queued, m2=wanted)
    for _ in range(3):
        assert effects(owner.tick()) == []
    assert owner.record("m2").state is MigrationState.READY
    owner.request(on, "m1")
    assert the_effect(owner.tick()).migration == "m1"


@pytest.mark.parametrize(
    "later",
    [
        migration(MigrationState.READY, spec(**WANTED), sequence=3, has_nothing_to_do=True),
        migration(MigrationState.READY, spec(**WANTED), sequence=3),
        migration(MigrationState.READY, spec(context="c"), sequence=3),
    ],
    ids=["as wanted", "to be changed", "duplicate"],
)
def test_a_table_is_judged_after_all_that_is_retried_by_itself(later: MigrationRecorded) -> None:
    """Its owner failed with two changes, and one of them is queued again in each tick."""
    lost = {"state": MigrationState.FAILED, "owner_failed": True, "ended_ms": NOW_MS}
    owner = Owner(
        m0=migration(MigrationState.COMPLETE, spec(context="c"), sequence=0),
        m1=migration(table="others", server="s2", sequence=1, launch_postponed=True, **lost),
        m2=migration(sequence=2, **lost),
        m3=later,
    )
    owner.tick()
    assert (owner.record("m2").state, owner.record("m3").state) == (MigrationState.FAILED, MigrationState.READY)
    owner.tick()
    assert (owner.record("m2").state, owner.record("m3").state) == (MigrationState.RUNNING, MigrationState.READY)


@pytest.mark.parametrize("of", [{}, WANTED])
def test_what_was_examined_before_a_change_of_the_table_is_examined_again(of: dict[str, Any]) -> None:
    owner = Owner(m1=migration(started_ms=1))
    adopt = the_effect(owner.begun)
    examine = the_effect(owner.submit("m2", spec(**of)))
    owner.now = 1.0
    owner.given(EffectFinished(adopt, fx.Completed()))
    owner.now = 2.0
    again = [e for e in effects(owner.given(EffectFinished(examine, examined()))) if isinstance(e, fx.ExamineMigration)]
    assert [(effect.migration, effect.asked_ms) for effect in again] == [("m2", NOW_MS + 2_000)]
    assert "m2" not in owner.state.migrations
    owner.given(EffectFinished(again[0], examined()))
    assert owner.record("m2").state is MigrationState.QUEUED


@pytest.mark.parametrize(
    "ended",
    [
        {"ended_ms": NOW_MS},
        {"ended_ms": NOW_MS + 9_000},
        {"ended_ms": NOW_MS + 1_000, "table": "others"},
        {"ended_ms": NOW_MS + 1_000, "server": "s2"},
        {"ended_ms": NOW_MS + 1_000, "started_ms": 0},
    ],
)
def test_a_change_that_the_answer_is_not_about_is_no_reason_to_ask_again(ended: dict[str, Any]) -> None:
    """It had ended before, ends in the future of a clock that was set back, is of another table, or changed nothing."""
    owner = Owner()
    examine = the_effect(owner.submit("m2", spec()))
    MIGRATIONS.evolve(owner.state, MigrationKey("m1"), migration(MigrationState.COMPLETE, **ended))
    owner.now = 2.0
    owner.given(EffectFinished(examine, examined()))
    assert owner.record("m2").state is MigrationState.QUEUED
