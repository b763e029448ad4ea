"""Whoever was passed over for two tables and has stopped one of them is still passed over for the other."""

from types import SimpleNamespace
from typing import cast

from headgate.coordinator.core.draft import CoordinatorDraft
from headgate.coordinator.core.spans import waiting
from headgate.records.control import Epoch, TaskReported, TaskState
from headgate.records.keys import SpanKey
from support import build

SESSION = ("a", "s")
ONE, OTHER = SpanKey("f", "one"), SpanKey("f", "other")


def said(state: TaskState) -> dict[tuple[str, str], TaskReported]:
    return {SESSION: build.task_reported(state=state)}


def test_who_has_stopped_one_table_is_forgiven_that_one_only() -> None:
    passed = {SESSION: {ONE: Epoch(0, 1), OTHER: Epoch(0, 2)}}
    draft = cast("CoordinatorDraft", SimpleNamespace(term=SimpleNamespace(passed_over=passed)))
    waiting.forgive(draft, ONE, said(TaskState.REPLICATING))
    assert waiting.is_passed_over(draft, ONE, SESSION, Epoch(0, 1)), "it has not stopped"
    waiting.forgive(draft, ONE, said(TaskState.STOPPED))
    assert not waiting.is_passed_over(draft, ONE, SESSION, Epoch(0, 1))
    assert waiting.is_passed_over(draft, OTHER, SESSION, Epoch(0, 2))
    waiting.forgive(draft, OTHER, {})
    assert passed == {}, "sessions come and go for ever"
