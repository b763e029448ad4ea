"""The effect of each transition of a generation (phases.py has the table), and what triggers it.

``advance`` looks at one set and takes every step that is due, until none is. It is called for every input that concerns
the set, and by a new owner for each set that it finds: a switch is resumed from its stage, from the log alone.
"""

from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from headgate.generation.changelog.core.admission import admit_writers, let_leave
from headgate.generation.changelog.core.phases import PHASE_AFTER, SwitchAction, SwitchSignal, action_for
from headgate.generation.core.draft import GenerationDraft
from headgate.generation.core.effects import FenceWriter, MeasureEnds, WriteEnds
from headgate.generation.core.ranges import LogMap
from headgate.generation.core.state import current_of, open_switch_of
from headgate.records.control import OutcomeStatus
from headgate.records.generation import (
    GenerationOutcomeKey,
    GenerationPhase,
    GenerationRecorded,
    SetRecorded,
    WriterCut,
    WriterReported,
)

__all__ = ["advance", "hear", "prepare", "raise_signal", "resume", "take_fenced"]

PROMISE_SECONDS: Final = 2.0
"""After so long without another promise, writers that have not promised are fenced: the others' affected ranges are
blocked until then. A live writer answers within its batch, some 10 ms."""

PROMISE_SECONDS_MAX: Final = 6.0
"""After so long they are fenced though promises still come. On a machine that is busy writers are slow, not silent; to
fence them there takes longer than to wait for them."""

FENCES_MAX: Final = 12
"""Writers that are fenced at once. Each costs the owner a round trip of up to seconds, and a writer that is alive after
all a new life: a writer that promises before its turn comes is left alone."""

ABANDON_SECONDS: Final = 20.0
"""After so long without a promise or a fence a switch is aborted: no broker answers."""

ABANDON_SECONDS_MAX: Final = 40.0
"""After so long it is aborted in any case: what its writers hold back must not wait until they give up (60 s)."""

RETRY_SECONDS: Final = 0.5
"""Pause before an effect that failed is asked for again."""

KEPT_SECONDS: Final = 7 * 86_400.0
"""How long a drained generation stays, for readers that begin from the oldest: Kafka's usual retention."""

DRAINED_MAX: Final = 1_000
"""Drained generations that are kept at most. All of them are in the set's record, which every process reads: a thousand
are a few hundred kilobytes."""

MARKERS_MAX: Final = 20_000
"""END markers in one effect, unless one writer alone has more. They take a second or two, and what is written counts:
if a later effect fails, only its own markers are written again."""

STEPS_MAX: Final = 1_000
"""Steps of one set in one decision; each leads to a later phase, so more is a bug."""


def advance(draft: GenerationDraft, name: str) -> None:
    """Take every step that is due."""
    for _ in range(STEPS_MAX):
        admit_writers(draft, name)
        due = _due(draft, name)
        if due is None:
            _ask_for_ends(draft, name)
            return
        raise_signal(draft, name, *due)
    raise RuntimeError(f"the review of set {name} does not end")


def resume(draft: GenerationDraft, name: str) -> None:
    """What a new owner does with a set that it finds."""
    advance(draft, name)
    for each in draft.record(name).generations:
        if each.phase is GenerationPhase.PREPARED:
            draft.wait_for_writers("promise", name, each.epoch, PROMISE_SECONDS)
            draft.wait_for_writers("abandon", name, each.epoch, ABANDON_SECONDS)
        elif each.phase is GenerationPhase.DRAINED:
            _forget_cuts(draft, name, each)
            _expire_later(draft, name, each)


def raise_signal(draft: GenerationDraft, name: str, epoch: int, signal: SwitchSignal, reason: str = "") -> None:
    """One signal for one generation. Raises UnknownTransitionError."""
    generation = draft.generation(name, epoch)
    action = action_for(None if generation is None else generation.phase, signal)
    if action is not SwitchAction.WAIT and generation is not None:
        _ACTIONS[action](draft, name, generation, reason)


def prepare(draft: GenerationDraft, name: str, log: LogMap, requests: tuple[str, ...], reason: str) -> None:
    """The map of the next generation is made: PREPARED. Without writers it is committed in the same decision."""
    action_for(None, SwitchSignal.CHOSEN)
    record = draft.record(name)
    current = current_of(record)
    chunks = draft.describe(name, log)
    cuts = tuple(WriterCut(each.writer, each.life, None, ended=False) for each in record.writers if not each.is_over)
    generation = GenerationRecorded(
        epoch=log.generation,
        phase=PHASE_AFTER[SwitchAction.PREPARE],
        chunks=chunks,
        follows=0 if current is None else current.epoch,
        cuts=cuts,
        closed_ends={},
        requests=requests,
        reason=reason,
        changed_ms=draft.now.wall_ms,
    )
    for old in record.generations:
        if old.phase is GenerationPhase.ABORTED:
            raise_signal(draft, name, old.epoch, SwitchSignal.EXPIRED)
    record = draft.record(name)
    draft.put_set(name, replace(record, generations=(*record.generations, generation), last_epoch=log.generation))
    draft.wait_for_writers("promise", name, log.generation, PROMISE_SECONDS)
    draft.wait_for_writers("abandon", name, log.generation, ABANDON_SECONDS)


def hear(draft: GenerationDraft, name: str, report: WriterReported) -> None:
    """A writer's word: one that promises shows that the others may be slow and not silent."""
    for each in draft.record(name).generations:
        if each.phase is GenerationPhase.PREPARED and report.promised_epoch == each.epoch:
            draft.wait_for_writers("promise", name, each.epoch, PROMISE_SECONDS, PROMISE_SECONDS_MAX)
            draft.wait_for_writers("abandon", name, each.epoch, ABANDON_SECONDS, ABANDON_SECONDS_MAX)


def take_fenced(draft: GenerationDraft, name: str, writer: str, position: int) -> None:
    """A writer has been fenced: it writes no more, and what it has written is its promise in whatever switch waits.

    The next of those who are silent still takes its turn.
    """
    let_leave(draft, name, writer, position)
    for each in draft.record(name).generations:
        if each.phase is GenerationPhase.PREPARED:
            draft.wait_for_writers("abandon", name, each.epoch, ABANDON_SECONDS, ABANDON_SECONDS_MAX)
            raise_signal(draft, name, each.epoch, SwitchSignal.OVERDUE)


def _due(draft: GenerationDraft, name: str) -> tuple[int, SwitchSignal] | None:
    """The first generation to which something has happened."""
    record = draft.record(name)
    for each in record.generations:
        match each.phase:
            case GenerationPhase.PREPARED if all(_promise(draft, name, each, cut) is not None for cut in each.cuts):
                return each.epoch, SwitchSignal.ACKNOWLEDGED
            case GenerationPhase.CLOSING if _successor(record, each) is not None:
                about = ("measure", name, each.epoch)
                if not draft.is_running(about) and all(cut.ended for cut in _follower(record, each).cuts):
                    return each.epoch, SwitchSignal.ENDED
            case GenerationPhase.SUPERSEDED if _is_read(draft, name, each):
                return each.epoch, SwitchSignal.READ
            case _:
                pass
    return None


def _successor(record: SetRecorded, generation: GenerationRecorded) -> GenerationRecorded | None:
    return next((each for each in record.generations if each.follows == generation.epoch and _is_committed(each)), None)


def _is_committed(generation: GenerationRecorded) -> bool:
    return generation.phase not in (GenerationPhase.PREPARED, GenerationPhase.ABORTED)


def _follower(record: SetRecorded, generation: GenerationRecorded) -> GenerationRecorded:
    found = _successor(record, generation)
    if found is None:
        raise LookupError(f"generation {generation.epoch} has no successor")
    return found


def _promise(draft: GenerationDraft, name: str, generation: GenerationRecorded, cut: WriterCut) -> int | None:
    """The position that a writer has promised, or was found to have written when it was fenced."""
    if cut.position is not None:
        return cut.position
    report = draft.report_of(name, cut.writer, cut.life)
    return None if report is None or report.promised_epoch != generation.epoch else report.promise


def _is_read(draft: GenerationDraft, name: str, generation: GenerationRecorded) -> bool:
    closed_by = _follower(draft.record(name), generation).epoch
    return all(reader.read_epoch >= closed_by for reader in draft.state.readers.get(name, {}).values())


# --- the actions of the table ---


def _commit(draft: GenerationDraft, name: str, generation: GenerationRecorded, _reason: str) -> None:
    cuts = tuple(replace(cut, position=_promise(draft, name, generation, cut)) for cut in generation.cuts)
    draft.change(name, generation.epoch, phase=PHASE_AFTER[SwitchAction.COMMIT], cuts=cuts)
    draft.note_committed(name, generation.epoch)
    for request in generation.requests:
        draft.settle(
            GenerationOutcomeKey(name, request), OutcomeStatus.DONE, f"generation {generation.epoch} is committed"
        )
    draft.stop_waiting("promise", name, generation.epoch)
    draft.stop_waiting("abandon", name, generation.epoch)
    if generation.follows:
        raise_signal(draft, name, generation.follows, SwitchSignal.FOLLOWED)


def _fence(draft: GenerationDraft, name: str, generation: GenerationRecorded, _reason: str) -> None:
    topic = draft.record(name).topic
    silent = [cut.writer for cut in generation.cuts if _promise(draft, name, generation, cut) is None]
    room = FENCES_MAX - draft.count_running("fence", name)
    for writer in [each for each in silent if not draft.is_running(("fence", name, each))][:room]:
        draft.run(("fence", name, writer), FenceWriter(name, generation.epoch, topic, writer))


def _abort(draft: GenerationDraft, name: str, generation: GenerationRecorded, reason: str) -> None:
    draft.change(name, generation.epoch, phase=PHASE_AFTER[SwitchAction.ABORT], reason=reason)
    for request in generation.requests:
        draft.settle(GenerationOutcomeKey(name, request), OutcomeStatus.FAILED, f"aborted: {reason}")
    draft.stop_waiting("promise", name, generation.epoch)
    draft.stop_waiting("abandon", name, generation.epoch)


def _close(draft: GenerationDraft, name: str, generation: GenerationRecorded, _reason: str) -> None:
    draft.change(name, generation.epoch, phase=PHASE_AFTER[SwitchAction.CLOSE])


def _measure(draft: GenerationDraft, name: str, generation: GenerationRecorded, _reason: str) -> None:
    record = draft.record(name)
    successor = _follower(record, generation)
    partitions = tuple(sorted(stream.partition for stream in draft.switch_to(name, successor).closed))
    draft.run(("measure", name, generation.epoch), MeasureEnds(name, generation.epoch, record.topic, partitions))


def _supersede(draft: GenerationDraft, name: str, generation: GenerationRecorded, _reason: str) -> None:
    draft.change(name, generation.epoch, phase=PHASE_AFTER[SwitchAction.SUPERSEDE])


def _drain(draft: GenerationDraft, name: str, generation: GenerationRecorded, _reason: str) -> None:
    draft.change(name, generation.epoch, phase=PHASE_AFTER[SwitchAction.DRAIN])
    _forget_cuts(draft, name, generation)
    draft.set_timer("expire", (generation.epoch, name), KEPT_SECONDS)
    drained = [each.epoch for each in draft.record(name).generations if each.phase is GenerationPhase.DRAINED]
    for epoch in drained[:-DRAINED_MAX]:
        raise_signal(draft, name, epoch, SwitchSignal.EXPIRED)


def _expire_later(draft: GenerationDraft, name: str, generation: GenerationRecorded) -> None:
    """Counted from when it was drained: a new owner's term must not give it another seven days."""
    drained_seconds = (draft.now.wall_ms - generation.changed_ms) / 1_000
    draft.set_timer("expire", (generation.epoch, name), min(KEPT_SECONDS, max(0.0, KEPT_SECONDS - drained_seconds)))


def _forget_cuts(draft: GenerationDraft, name: str, drained: GenerationRecorded) -> None:
    """Remove the cuts once the ends of the closed streams are measured: later readers need only the ends.

    The cuts of hundreds of generations with a hundred writers each would be most of the record.
    """
    successor = _successor(draft.record(name), drained)
    if successor is not None and successor.cuts:
        draft.change(name, successor.epoch, cuts=())


def _retire(draft: GenerationDraft, name: str, generation: GenerationRecorded, _reason: str) -> None:
    record = draft.record(name)
    left = tuple(each for each in record.generations if each.epoch != generation.epoch)
    draft.put_set(name, replace(record, generations=left))
    draft.undescribe(name, generation)


_ACTIONS: Final[dict[SwitchAction, Callable[[GenerationDraft, str, GenerationRecorded, str], None]]] = {
    SwitchAction.COMMIT: _commit,
    SwitchAction.FENCE: _fence,
    SwitchAction.ABORT: _abort,
    SwitchAction.CLOSE: _close,
    SwitchAction.MEASURE: _measure,
    SwitchAction.SUPERSEDE: _supersede,
    SwitchAction.DRAIN: _drain,
    SwitchAction.RETIRE: _retire,
}


def _ask_for_ends(draft: GenerationDraft, name: str) -> None:
    """The owner ends the closed streams for all writers: each has promised, or was fenced, and writes no more there."""
    record = draft.record(name)
    generation = open_switch_of(record)
    if generation is None or generation.phase is GenerationPhase.PREPARED:
        return
    cuts = tuple((cut.writer, cut.position or 0) for cut in generation.cuts if not cut.ended)
    if cuts:
        partitions = tuple(sorted(stream.partition for stream in draft.switch_to(name, generation).closed))
        effect = WriteEnds(
            name, generation.epoch, record.topic, partitions, cuts[: max(1, MARKERS_MAX // len(partitions))]
        )
        draft.run(("ends", name, generation.epoch), effect)
