"""What a change log's record keeps, and what an owner does again: both are bounded, whoever dies."""

import random

import pytest

from headgate.eventlog.log import Delivery, Partition
from headgate.generation.changelog.core import switching
from headgate.generation.changelog.core.planning import first_map, next_map, resize
from headgate.generation.changelog.core.switching import DRAINED_MAX, KEPT_SECONDS, MARKERS_MAX
from headgate.generation.core.effects import (
    EndsMeasured,
    EndsWritten,
    LogSeen,
    LookAtLog,
    MeasureEnds,
    WriteEnds,
)
from headgate.generation.core.state import GenerationState, chunks_of, evolve, new_state
from headgate.generation.owner.core.machine import decide
from headgate.records.control import OutcomeStatus, RequestSettled
from headgate.records.generation import (
    ChunkKey,
    GenerationOutcomeKey,
    GenerationPhase,
    GenerationRecorded,
    GenerationRequested,
    GenerationRequestKey,
    GenerationRequestKind,
    ReaderKey,
    ReaderReported,
    SetKey,
    SetRecorded,
    WriterAdmitted,
    WriterCut,
)
from headgate.runtime.machine import Arrived, Decision, EffectFailed, EffectFinished, Now, SetTimer, TermBegan

BITS = random.Random(3).getrandbits  # noqa: S311 (ids, not secrets)
DAY_MS = 86_400_000
NOW_MS = 100 * DAY_MS
PARTITIONS = 64


def state_of(maps: int, phases: list[GenerationPhase], cuts: int = 2, ended: bool = True) -> GenerationState:
    """A set with so many generations, each of which cuts one stream of the one before."""
    state, log, records = new_state(0), first_map(PARTITIONS, 1, BITS), []
    for epoch in range(1, maps + 1):
        if epoch > 1:
            used = {stream.partition for stream in log.streams}
            free = [number for number in range(PARTITIONS) if number not in used]
            log = next_map(log, resize(log, 2 if epoch % 2 == 0 else 1), free, PARTITIONS, BITS, generation=epoch)
        for number, chunk in enumerate(chunks_of(log, 0)):
            evolve(state, ChunkKey("s", epoch, number), chunk, 0)
        given = tuple(WriterCut(f"w{number}", 1, 7, ended=ended) for number in range(cuts)) if epoch > 1 else ()
        records.append(
            GenerationRecorded(epoch, phases[epoch - 1], 1, epoch - 1, given, {0: 5}, (), "", NOW_MS - 6 * DAY_MS)
        )
    writers = tuple(WriterAdmitted(f"w{number}", 1, is_over=False) for number in range(cuts))
    evolve(state, SetKey("s"), SetRecorded(0, "t", None, PARTITIONS, maps, tuple(records), writers), 0)
    return state


def given(state: GenerationState, what: object, now_ms: int = NOW_MS) -> Decision:
    decision = decide(state, what, Now(100.0, now_ms))
    for fact in decision.facts:
        evolve(state, fact.key, fact.value, 1)
    return decision


def timers(decision: Decision, kind: str) -> dict[str, float]:
    return {
        each.name: each.delay_seconds for each in decision.effects if isinstance(each, SetTimer) and kind in each.name
    }


DRAINED_FIRST = [GenerationPhase.DRAINED, GenerationPhase.DRAINED, GenerationPhase.COMMITTED]


@pytest.mark.parametrize(("days_later", "left"), [(0, KEPT_SECONDS / 7), (0.5, KEPT_SECONDS / 14), (30, 0.0)])
def test_a_new_owner_does_not_keep_drained_generations_for_another_seven_days(days_later: float, left: float) -> None:
    decision = given(state_of(3, DRAINED_FIRST), TermBegan(1), NOW_MS + int(days_later * DAY_MS))
    assert timers(decision, "expire") == {"expire/1/s": left, "expire/2/s": left}


def test_an_owner_whose_clock_is_behind_keeps_them_no_longer_than_seven_days() -> None:
    decision = given(state_of(3, DRAINED_FIRST), TermBegan(1), NOW_MS - 90 * DAY_MS)
    assert timers(decision, "expire") == {"expire/1/s": KEPT_SECONDS, "expire/2/s": KEPT_SECONDS}


def test_the_cuts_that_drained_generations_had_are_forgotten_also_those_of_earlier_versions() -> None:
    state = state_of(3, DRAINED_FIRST)
    given(state, TermBegan(1))
    assert [each.cuts for each in state.sets["s"].generations] == [(), (), ()]


def test_cuts_are_kept_until_every_reader_has_read_what_they_closed() -> None:
    state = state_of(2, [GenerationPhase.SUPERSEDED, GenerationPhase.COMMITTED])
    evolve(state, ReaderKey("s", "r"), ReaderReported(1, 0), 0)
    given(state, TermBegan(1))
    assert [len(each.cuts) for each in state.sets["s"].generations] == [0, 2]
    key, report = ReaderKey("s", "r"), ReaderReported(2, 0)
    evolve(state, key, report, 1)
    given(state, Arrived(Delivery(Partition("generation", 0), 1, key, report)))
    assert [(each.phase, each.cuts) for each in state.sets["s"].generations] == [
        (GenerationPhase.DRAINED, ()),
        (GenerationPhase.COMMITTED, ()),
    ]


def test_there_is_a_bound_on_drained_generations(monkeypatch: pytest.MonkeyPatch) -> None:
    assert DRAINED_MAX == 1_000
    monkeypatch.setattr(switching, "DRAINED_MAX", 3)
    state = state_of(5, [*[GenerationPhase.DRAINED] * 3, GenerationPhase.SUPERSEDED, GenerationPhase.COMMITTED])
    given(state, TermBegan(1))
    assert [each.epoch for each in state.sets["s"].generations] == [2, 3, 4, 5], "the oldest is retired"
    assert ("s", 1) not in state.chunks


def test_end_markers_are_written_in_parts_and_none_again_that_is_written(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MARKERS_MAX == 20_000
    monkeypatch.setattr(switching, "MARKERS_MAX", 4)
    phases = [GenerationPhase.CLOSING, GenerationPhase.COMMITTED]
    state = state_of(2, phases, cuts=10, ended=False)
    waiting = [each for each in given(state, TermBegan(1)).effects if isinstance(each, WriteEnds)]
    tried: list[tuple[str, ...]] = []
    while waiting:
        effect = waiting.pop()
        tried.append(tuple(writer for writer, _ in effect.cuts))
        fails = len(tried) == 2
        result = EffectFailed("no broker") if fails else EndsWritten()
        decision = given(state, EffectFinished(effect, result))
        if fails:
            state = replace_term(state)
            decision = given(state, TermBegan(2))
        waiting += [each for each in decision.effects if isinstance(each, WriteEnds)]
    assert tried == [
        ("w0", "w1", "w2", "w3"),
        ("w4", "w5", "w6", "w7"),
        ("w4", "w5", "w6", "w7"),
        ("w8", "w9"),
    ], "the second owner begins where the first one stopped"


def replace_term(state: GenerationState) -> GenerationState:
    state.term = None
    return state


def test_repair_says_why_a_switch_stands_still() -> None:
    state = state_of(2, [GenerationPhase.CLOSING, GenerationPhase.COMMITTED], ended=False)
    (effect,) = [each for each in given(state, TermBegan(1)).effects if isinstance(each, WriteEnds)]
    assert settled(state) == (OutcomeStatus.DONE, "nothing is wrong: generation 2 covers every token"), (
        "it is under way"
    )
    given(state, EffectFinished(effect, EffectFailed("INVALID_RECORD: compacted")))
    status, said = settled(state)
    assert status is OutcomeStatus.FAILED
    assert said == "the switch to generation 2 waits: writing END markers fails: INVALID_RECORD: compacted"
    given(state, EffectFinished(effect, EndsWritten()))
    given(state, EffectFinished(MeasureEnds("s", 1, "t", (0,)), EffectFailed("no broker")))
    assert "measuring the closed streams fails: no broker" in settled(state)[1]


def settled(state: GenerationState) -> tuple[OutcomeStatus, str]:
    """What a check says."""
    key = GenerationRequestKey("s", f"r{random.random()}")  # noqa: S311 (a name)
    request = GenerationRequested(GenerationRequestKind.REPAIR, "", 0, 0, 0, (), "me", 0)
    evolve(state, key, request, 1)
    asked = given(state, Arrived(Delivery(Partition("generation", 0), 1, key, request)))
    (look,) = [each for each in asked.effects if isinstance(each, LookAtLog)]
    given(state, EffectFinished(look, LogSeen(None, dict.fromkeys(range(PARTITIONS), 0), 0)))
    outcome = state.outcomes[GenerationOutcomeKey("s", key.request)]
    return outcome.status, outcome.reason


def test_measuring_the_ends_after_all_parts_are_written_ends_the_switch() -> None:
    state = state_of(2, [GenerationPhase.CLOSING, GenerationPhase.COMMITTED], ended=False)
    (effect,) = [each for each in given(state, TermBegan(1)).effects if isinstance(each, WriteEnds)]
    decision = given(state, EffectFinished(effect, EndsWritten()))
    (measure,) = [each for each in decision.effects if isinstance(each, MeasureEnds)]
    given(state, EffectFinished(measure, EndsMeasured({0: 9})))
    assert [each.phase for each in state.sets["s"].generations] == [GenerationPhase.DRAINED, GenerationPhase.COMMITTED]


@pytest.mark.parametrize(
    ("status", "age_days", "is_kept"),
    [(OutcomeStatus.DONE, 2, False), (OutcomeStatus.REFUSED, 2, False), (OutcomeStatus.DONE, 0.5, True)],
)
def test_a_new_owner_deletes_requests_that_were_settled_long_ago(
    status: OutcomeStatus, age_days: float, *, is_kept: bool
) -> None:
    state = state_of(1, [GenerationPhase.COMMITTED])
    key, outcome = GenerationRequestKey("s", "old"), GenerationOutcomeKey("s", "old")
    evolve(state, key, GenerationRequested(GenerationRequestKind.GROW, "", 65, 0, 0, (), "me", 0), 0)
    evolve(state, outcome, RequestSettled(0, status, "", NOW_MS - int(age_days * DAY_MS)), 0)
    given(state, TermBegan(1))
    assert (key in state.requests, outcome in state.outcomes) == (is_kept, is_kept)
