"""What one decision of the owner of change logs knows and leaves behind, and what records make of its state."""

import random
from typing import Any

import pytest
from msgspec.structs import replace

from headgate.generation.changelog.core.automatic import hear
from headgate.generation.changelog.core.life import LifeOverError
from headgate.generation.changelog.core.log_requests import create
from headgate.generation.changelog.core.planning import first_map, next_map, resize
from headgate.generation.changelog.core.request_queue import what_is_wrong
from headgate.generation.changelog.core.requests import answer, take_repair
from headgate.generation.core.draft import GenerationDraft
from headgate.generation.core.effects import LogSeen, LookAtLog
from headgate.generation.core.state import GenerationState, chunks_of, evolve, new_state
from headgate.generation.core.term import GenerationTerm
from headgate.generation.owner.core.machine import decide
from headgate.records.control import OutcomeStatus, OwnerAnnounced
from headgate.records.generation import (
    ChunkKey,
    GenerationOutcomeKey,
    GenerationOwnerKey,
    GenerationPhase,
    GenerationRecorded,
    GenerationRequested,
    GenerationRequestKey,
    GenerationRequestKind,
    SetKey,
    SetRecorded,
    StreamLoad,
    WriterKey,
    WriterReported,
)
from headgate.runtime.machine import EffectFailed, EffectFinished, Now, TermBegan, TimerFired

BITS = random.Random(5).getrandbits  # noqa: S311 (ids, not secrets)
ONE = first_map(8, 1, BITS)
OTHER = first_map(8, 2, BITS)
TWO = next_map(ONE, resize(ONE, 2), [1, 2], 8, BITS)


def a_set(*epochs: int) -> SetRecorded:
    generations = tuple(
        GenerationRecorded(epoch, GenerationPhase.COMMITTED, 1, epoch - 1, (), {}, (), "", 0) for epoch in epochs
    )
    return SetRecorded(1, "topic", None, 8, max(epochs), generations, ())


def state_with(**sets: SetRecorded) -> GenerationState:
    state = new_state(0)
    for name, record in sets.items():
        evolve(state, SetKey(name), record, 0)
    return state


def draft_of(state: GenerationState, *, monotonic: float = 5.0) -> GenerationDraft:
    return GenerationDraft(state, GenerationTerm(owner_rev=1, began=0.0), Now(monotonic, 1_000))


def test_a_deleted_set_leaves_no_failure_behind_and_no_other_sets_is_lost() -> None:
    draft = draft_of(state_with(gone=a_set(1), kept=a_set(1)))
    draft.term.failures |= {("look", "gone"): "x", ("ends", "gone", 1): "y", ("look", "kept"): "z"}
    draft.delete_set("gone")
    assert draft.term.failures == {("look", "kept"): "z"}
    assert draft.find("gone") is None


def test_when_a_generation_came_into_force_is_remembered_while_it_is_on_record() -> None:
    draft = draft_of(state_with(orders=a_set(2, 3)))
    draft.memory("orders").committed |= {1: 1.0, 2: 2.0}
    draft.note_committed("orders", 3)
    assert draft.memory("orders").committed == {2: 2.0, 3: 5.0}


def asked(state: GenerationState, kind: GenerationRequestKind) -> tuple[OutcomeStatus, str]:
    draft = draft_of(state)
    request = GenerationRequested(kind, "topic", 8, 1, 0, (), "test", 0)
    answer(draft, GenerationRequestKey("orders", "r"), request)
    found = draft.outcome(GenerationOutcomeKey("orders", "r"))
    assert found is not None
    return found.status, found.reason


@pytest.mark.parametrize("kind", [GenerationRequestKind.DELETE, GenerationRequestKind.RETIRE])
def test_only_the_deletion_of_what_was_deleted_is_done(kind: GenerationRequestKind) -> None:
    never, deleted = state_with(), state_with(orders=replace(a_set(1), topic="", generations=()))
    refused = (OutcomeStatus.REFUSED, "not_found: change log 'orders' does not exist")
    assert asked(never, kind) == refused
    done = (OutcomeStatus.DONE, "change log 'orders' is deleted")
    assert asked(deleted, kind) == (done if kind is GenerationRequestKind.DELETE else refused)


def test_a_change_log_that_exists_as_asked_for_is_checked_and_another_one_is_refused() -> None:
    for topic, partitions, is_checked in (("topic", 8, True), ("topic", 9, False), ("other", 8, False)):
        draft = draft_of(state_with(orders=a_set(1)))
        outcome = GenerationOutcomeKey("orders", "r")
        request = GenerationRequested(GenerationRequestKind.CREATE, topic, partitions, 1, 0, (), "test", 0)
        create(draft, outcome, request, draft.record("orders"))
        settled = draft.outcome(outcome)
        assert settled is not None
        assert settled.status is (OutcomeStatus.ACCEPTED if is_checked else OutcomeStatus.REFUSED)
        assert draft.is_running(("repair", "orders")) is is_checked


@pytest.mark.parametrize(
    ("known", "seen", "is_wrong"), [("a", "a", False), ("a", "b", True), (None, "b", False), ("a", None, False)]
)
def test_a_topic_that_was_re_created_is_known_by_its_id(known: str | None, seen: str | None, is_wrong: bool) -> None:
    record = replace(a_set(1), topic_id=known)
    wrong = what_is_wrong(record, LogSeen(seen, dict.fromkeys(range(8), 0), 1))
    assert ("was deleted and re-created" in (wrong or "")) is is_wrong


def test_a_writers_load_is_of_its_incarnation_that_reported_it() -> None:
    draft = draft_of(state_with(orders=a_set(1)))
    silent = WriterReported(1, 1, 0, leaving=False, loads=(), reported_ms=0)
    told = replace(silent, loads=(StreamLoad("s", 1, 1.0, ()),))
    heard = draft.memory("orders").heard
    hear(draft, WriterKey("orders", "w", 2), told)
    for life, report in ((1, silent), (1, told), (3, silent)):
        hear(draft, WriterKey("orders", "w", life), report)
        assert heard == {"w": (2, 5.0)}, "of an incarnation before or after it"
    hear(draft, WriterKey("orders", "w", 2), silent)
    assert heard == {}, "its own report without a load"


def test_a_check_whose_look_failed_is_made_again() -> None:
    state = state_with(orders=a_set(1))
    request = GenerationRequested(GenerationRequestKind.REPAIR, "", 0, 0, 0, (), "test", 0)
    evolve(state, GenerationRequestKey("orders", "r"), request, 5)

    def given(what: Any) -> list[Any]:
        decision = decide(state, what, Now(1.0, 0))
        for fact in decision.facts:
            evolve(state, fact.key, fact.value, 6)
        return list(decision.effects)

    look = LookAtLog("orders", "topic", is_check=True)
    assert look in given(TermBegan(1))
    (timer,) = [effect for effect in given(EffectFinished(look, EffectFailed("no answer"))) if hasattr(effect, "name")]
    assert look in given(TimerFired(timer.name))


def told(state: GenerationState, owner_rev: int, log: Any) -> None:
    for number, chunk in enumerate(chunks_of(log, owner_rev)):
        evolve(state, ChunkKey("orders", log.generation, number), chunk, 0)


def test_a_chunk_of_an_owner_that_is_none_any_more_is_passed_over_and_a_new_one_replaces_the_map() -> None:
    state = state_with(orders=a_set(1))
    told(state, 3, ONE)
    table = state.streams_of("orders")
    assert state.map_of("orders", 1).streams == ONE.streams
    told(state, 2, OTHER)
    assert state.map_of("orders", 1).streams == ONE.streams
    told(state, 3, OTHER)
    assert state.map_of("orders", 1).streams == OTHER.streams, "of the same owner, the latest counts"
    assert state.streams_of("orders") is not table
    told(state, 4, ONE)
    assert state.map_of("orders", 1).streams == ONE.streams


def checked(
    seen: LogSeen, *, switching: bool = False, failures: dict[tuple[Any, ...], str] | None = None
) -> GenerationDraft:
    """The draft once the topic was looked at for a check."""
    record = replace(a_set(1), topic_id="a")
    if switching:
        second = GenerationRecorded(2, GenerationPhase.PREPARED, 1, 1, (), {}, (), "", 0)
        record = replace(record, generations=(*record.generations, second), last_epoch=2)
    state = state_with(orders=record)
    for log in (ONE, TWO):
        told(state, 1, log)
    request = GenerationRequested(GenerationRequestKind.REPAIR, "", 0, 0, 0, (), "test", 0)
    evolve(state, GenerationRequestKey("orders", "r"), request, 5)
    draft = draft_of(state)
    draft.settle(GenerationOutcomeKey("orders", "r"), OutcomeStatus.ACCEPTED, "looking")
    draft.term.failures |= failures or {}
    take_repair(draft, "orders", seen)
    return draft


def test_a_check_adopts_partitions_of_its_own_topic_only() -> None:
    ends = dict.fromkeys(range(9), 0)
    assert checked(LogSeen("a", ends, 1)).record("orders").partitions == 9
    assert checked(LogSeen("b", ends, 1)).record("orders").partitions == 8


def test_a_check_says_what_a_switch_waits_for() -> None:
    failures = {("fence", "orders", "w1"): "no answer", ("look", "orders"): "not of the switch"}
    draft = checked(LogSeen("a", dict.fromkeys(range(8), 0), 1), switching=True, failures=failures)
    settled = draft.outcome(GenerationOutcomeKey("orders", "r"))
    assert settled is not None
    said = "the switch to generation 2 waits: fencing a writer fails: no answer"
    assert (settled.status, settled.reason) == (OutcomeStatus.FAILED, said)


def test_a_log_without_a_generation_in_force_has_no_current_streams() -> None:
    for phase, current in ((GenerationPhase.COMMITTED, set(ONE.by_id)), (GenerationPhase.PREPARED, set())):
        record = a_set(1)
        state = state_with(orders=replace(record, generations=(replace(record.generations[0], phase=phase),)))
        told(state, 1, ONE)
        table = state.streams_of("orders")
        assert table is not None
        assert table.current == current


def announced(owner_rev: int | None) -> OwnerAnnounced:
    return OwnerAnnounced("o", owner_rev, "v", 1, 5.0, 0)


def test_the_owner_is_that_of_the_own_shard() -> None:
    state = new_state(0)
    evolve(state, GenerationOwnerKey(1), announced(9), 90)
    assert state.owner_rev == new_state(0).owner_rev
    evolve(state, GenerationOwnerKey(0), announced(7), 70)
    assert state.owner_rev == 7
    evolve(state, GenerationOwnerKey(0), None, 80)
    assert state.owner_rev == 7, "a tombstone says nothing"


def test_why_an_incarnation_is_over() -> None:
    assert str(LifeOverError(is_replaced=True)) == "another process has replaced it"
    assert str(LifeOverError(is_replaced=False)) == "the owner has fenced it"
