"""Admission of a change log's writers: which session of each may write, and its part in a switch.

A life is admitted where no switch could miss it; from then on every switch waits for it, until it has left or was
fenced.
"""

from msgspec.structs import replace

from headgate.generation.core.draft import GenerationDraft
from headgate.generation.core.state import current_of, open_switch_of
from headgate.records.generation import GenerationPhase, WriterAdmitted, WriterKey

__all__ = ["admit_writers", "let_leave"]


def admit_writers(draft: GenerationDraft, name: str) -> None:
    """Let new lives write where no switch could miss them; see that those that left are not waited for."""
    reports = draft.state.writers.get(name, {})
    newest: dict[str, int] = {}
    for writer, life in reports:
        newest[writer] = max(life, newest.get(writer, -1))
    admitted = {each.writer: each for each in draft.record(name).writers}
    for writer, life in sorted(newest.items()):
        known = admitted.get(writer)
        if known is None or known.life < life:
            if not reports[writer, life].leaving and _may_join(draft, name, writer, life):
                draft.admit(name, WriterAdmitted(writer, life, is_over=False))
                _forget_earlier(draft, name, writer, life)
        elif known.life == life and not known.is_over and reports[writer, life].leaving:
            let_leave(draft, name, writer, reports[writer, life].promise)


def _may_join(draft: GenerationDraft, name: str, writer: str, life: int) -> bool:
    """Whether a life may write from now on, by the switch that is under way. Its part in that switch passes to it."""
    generation = open_switch_of(draft.record(name))
    if draft.is_running(("fence", name, writer)) or current_of(draft.record(name)) is None:
        return False
    if generation is None:
        return True
    is_prepared = generation.phase is GenerationPhase.PREPARED
    cut = next((each for each in generation.cuts if each.writer == writer), None)
    if cut is None:
        # It does not know of the switch, nor the switch of it: the next map is for it.
        return not is_prepared
    if is_prepared:
        if cut.life is None:
            return False
        draft.change_cut(name, generation.epoch, writer, life=life, position=None)
    return True


def let_leave(draft: GenerationDraft, name: str, writer: str, position: int) -> None:
    """A writer writes no more, and has written up to a position: the switch that is under way need not wait for it."""
    generation = open_switch_of(draft.record(name))
    known = next((each for each in draft.record(name).writers if each.writer == writer), None)
    if known is not None and not known.is_over:
        draft.admit(name, replace(known, is_over=True))
    if generation is not None and generation.phase is GenerationPhase.PREPARED:
        draft.change_cut(name, generation.epoch, writer, life=None, position=position)


def _forget_earlier(draft: GenerationDraft, name: str, writer: str, life: int) -> None:
    for other, earlier in sorted(draft.state.writers.get(name, {})):
        if other == writer and earlier < life:
            draft.delete(WriterKey(name, writer, earlier))
