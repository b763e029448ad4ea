"""What is due between two batches, and who goes first."""

from collections.abc import Callable
from typing import Any, get_args

import pytest
from msgspec.structs import replace

from headgate.agent.core.executor import CopyOrder, SpanId, SpanTask
from headgate.agent.core.span import inputs
from headgate.agent.core.span.errands import SETTLED_MAX, Errand, errands
from headgate.agent.core.span.inputs import CopyDue, MaintainDue, SettleDue
from headgate.agent.core.span.progress import SpanProgress
from headgate.agent.core.span.states import CATCH_UP_SECONDS_MAX, CATCH_UP_SECONDS_MIN, REST_SECONDS, Span, TaskPhase
from headgate.records.control import Epoch, SpanPlan, TaskState

NOW = 1_000.0
COPIES_MAX = 4


def span(name: str, lane: str = "busy", **fields: Any) -> Span:
    """A span that is between two batches."""
    plan = SpanPlan(span=name, topic="t", table=f"public.{name}", start={0: 0})
    task = SpanTask(SpanId("f", name), "0-1", 1, Epoch(1, 1), plan, "")
    made = Span(task, 1, True, TaskPhase.CLAIMED, 0.0, lane=lane, served=TaskState.REPLICATING, claimed=True)
    return replace(made, **fields)


def copied(name: str, at: float = 0.0, **fields: Any) -> Span:
    made = span(name, copying="some rows", copied_at=at, **fields)
    return replace(made, task=replace(made.task, copy=CopyOrder("r", "")))


def rested(name: str, seconds: float = REST_SECONDS, **fields: Any) -> Span:
    return span(name, progress=SpanProgress(positions={0: 5}, rests_since=NOW - seconds), **fields)


def chosen(
    *members: Span, others: tuple[Span, ...] = (), caught_up: Callable[[str], bool | None] = lambda _: True
) -> dict[str, type]:
    found = errands(members, lambda: (*members, *others), NOW, caught_up=caught_up, copies_max=COPIES_MAX)
    return {span.span: type(errand) for span, errand in found.items()}


def test_whatever_can_be_due_between_two_batches_is_an_errand() -> None:
    """So that the next one is chosen at the begin of a batch, too. A retry is of a span that has no lane."""
    due = {getattr(inputs, name) for name in inputs.__all__ if name.endswith("Due")}
    assert due - {inputs.RetryDue} == set(get_args(Errand))


def test_nothing_is_due_of_a_span_in_a_batch() -> None:
    busy = [copied("a"), rested("b"), span("c", maintain_for="m")]
    assert chosen(*busy) == {"a": CopyDue, "b": SettleDue, "c": MaintainDue}
    assert chosen(*(replace(each, phase=TaskPhase.WRITING) for each in busy)) == {}


def test_one_table_is_maintained_at_a_time_a_requested_one_first() -> None:
    spans = [span("late", maintain_at=NOW - 1), span("later", maintain_at=NOW - 2), span("asked", maintain_for="m")]
    assert chosen(*spans) == {"asked": MaintainDue}
    assert chosen(*spans[:2]) == {"later": MaintainDue}
    at_work = span("other", lane=None, phase=TaskPhase.OPENING, is_maintained=True)
    assert chosen(*spans, others=(at_work,)) == {}


def test_positions_that_have_waited_longest_move_and_before_more_rows_are_copied() -> None:
    spans = [rested(f"s{number}", REST_SECONDS + number) for number in range(SETTLED_MAX + 3)]
    assert chosen(*spans) == {f"s{number}": SettleDue for number in range(3, SETTLED_MAX + 3)}
    both = replace(copied("a"), progress=rested("a").progress)
    assert chosen(both) == {"a": SettleDue}
    assert chosen(rested("a", REST_SECONDS - 0.1)) == {}


@pytest.mark.parametrize(("copying", "begun"), [(0, COPIES_MAX), (COPIES_MAX - 1, 1), (COPIES_MAX, 0)])
def test_tables_copy_more_when_there_is_room_and_those_that_have_waited_longest_first(copying: int, begun: int) -> None:
    waiting = [copied(f"s{number}", at=float(-number)) for number in range(COPIES_MAX + 3)]
    at_work = [copied(f"at work {number}", lane=None, phase=TaskPhase.OPENING) for number in range(copying)]
    assert (
        list(chosen(*waiting, others=tuple(at_work)))
        == [f"s{number}" for number in range(COPIES_MAX + 2, -1, -1)][:begun]
    )


def test_tables_of_a_busy_lane_do_not_overtake_those_of_others() -> None:
    mine, others = copied("mine", at=1.0), tuple(copied(f"s{number}", lane="idle") for number in range(COPIES_MAX))
    assert chosen(mine, others=others) == {}
    assert chosen(mine, others=others[1:]) == {"mine": CopyDue}
    in_batch = {"busy": True, "idle": None}
    assert chosen(mine, others=others, caught_up=in_batch.get) == {"mine": CopyDue}


def test_a_lane_that_has_not_caught_up_has_more_time_between_two_turns() -> None:
    for has_caught_up, seconds in ((True, CATCH_UP_SECONDS_MIN), (False, CATCH_UP_SECONDS_MAX)):
        assert chosen(copied("a", NOW - seconds), caught_up=lambda _, known=has_caught_up: known) == {"a": CopyDue}
        assert chosen(copied("a", NOW - seconds + 0.1), caught_up=lambda _, known=has_caught_up: known) == {}
