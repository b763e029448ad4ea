"""What tasks stage and the driver commits, without Spark: whose results become true, and what is kept before that."""

from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Any

import msgspec
import pytest

from headgate.records.source_tables import SourceTable
from headgate.replication import commits, task_run
from headgate.replication.commits import commit_staged
from headgate.replication.merging import merge_results
from headgate.replication.plan import BatchPlan, SpanWork, TaskResult
from headgate.replication.silent_sinks import SILENT_SECONDS, SilentSinks
from headgate.sinks.contract import (
    ChangeBatch,
    OffsetRange,
    QuarantineUnavailableError,
    SinkFencedError,
    SinkSilentError,
    ValueRefusedError,
)
from headgate.sinks.on_driver import Commit, Staged

from .conftest import BOX, SPEC, RecordingParts, RecordingQuarantine, chunk, work

ORDERS: SourceTable = ("d", "s", "orders")


class DriverParts(RecordingParts):
    """Parts of a feed whose sink commits on the driver: a batch's payload is its offsets."""

    def __init__(self) -> None:
        super().__init__()
        self.commits_on_driver = True
        self.commits: list[Commit] = []
        self.refused: dict[str, Exception] = {}
        self.evolves_tables = False

    def stager(self) -> "DriverParts":
        return self

    def stage(self, batch: ChangeBatch) -> Staged:
        applied = self.apply(batch)
        ranges = {p: OffsetRange(span.expected, applied.positions[p]) for p, span in batch.ranges.items()}
        staged = [[c.partition, c.offset] for c in self.batches[-1].changes if (c.partition, c.offset) not in self.bad]
        return Staged(ranges, msgspec.json.encode(staged), applied.upserts)

    def committer(self) -> "DriverParts":
        return self

    def commit(self, commit: Commit) -> None:
        if commit.claim.table in self.refused:
            raise self.refused[commit.claim.table]
        if commit.keep is not None:
            commit.keep()
        self.commits.append(commit)

    def committed(self) -> list[tuple[str, list[list[int]], dict[int, tuple[int, int]]]]:
        return [
            (
                each.claim.table,
                [place for payload in each.payloads for place in msgspec.json.decode(payload)],
                {p: (span.expected, span.next) for p, span in each.ranges.items()},
            )
            for each in self.commits
        ]


@pytest.fixture
def parts(monkeypatch: pytest.MonkeyPatch) -> DriverParts:
    made = DriverParts()
    for module in (task_run, commits):
        monkeypatch.setattr(module.kept, "lent", lambda _feed: nullcontext(made))
        monkeypatch.setattr(module, "silent_sinks", SilentSinks())
    monkeypatch.setattr(commits.kept, "expire_in_background", lambda: None)
    return made


@pytest.fixture
def letters(monkeypatch: pytest.MonkeyPatch) -> Iterator[RecordingQuarantine]:
    """What the driver sets aside; a task that writes it itself fails."""
    made = RecordingQuarantine()
    monkeypatch.setattr(commits, "DeadLetterWriter", lambda _target: made)
    return made


def plan_of(*works: SpanWork, **more: Any) -> BatchPlan:
    return BatchPlan(SPEC, works, **more)


def over_the_wire(task: TaskResult) -> TaskResult:
    """As it comes from Spark."""
    return msgspec.msgpack.decode(msgspec.msgpack.encode(task), type=TaskResult)


def staged(plan: BatchPlan, *tasks: Sequence[Any]) -> list[TaskResult]:
    return [over_the_wire(task_run.run_task(plan, chunks)) for chunks in tasks]


def test_a_task_only_stages_and_one_commit_per_table_has_the_parts_of_all_tasks(parts: DriverParts) -> None:
    plan = plan_of(work("a", {0: 5, 1: 0}), work("b", {0: 0}))
    tasks = staged(plan, [chunk("a", 0, [5, 6])], [chunk("a", 1, [2]), chunk("b", 0, [7])])
    assert parts.commits == []
    results = commit_staged(plan, tasks)
    assert parts.committed() == [
        ("a", [[0, 5], [0, 6], [1, 2]], {0: (5, 7), 1: (0, 3)}),
        ("b", [[0, 7]], {0: (0, 8)}),
    ]
    a, b = merge_results(results, 10_000)
    assert (a.positions, a.rows, a.error_code, b.positions) == ({0: 7, 1: 3}, 3, None, {0: 8})
    assert (a.visible_ms, b.visible_ms) == (10_000, 10_000), "they became visible when the driver had committed"
    assert all(task.staged == () for task in results)


def test_portions_of_one_task_are_one_commit(parts: DriverParts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_run, "TASK_BYTES_MAX", 1)
    plan = plan_of(work("a", {0: 5}))
    tasks = staged(plan, [chunk("a", 0, [5]), chunk("a", 0, [9]), chunk("a", 0, [11])])
    assert len(tasks[0].staged) == 3
    (result,) = merge_results(commit_staged(plan, tasks), 0)
    assert parts.committed() == [("a", [[0, 5], [0, 9], [0, 11]], {0: (5, 12)})]
    assert (result.positions, result.rows) == ({0: 12}, 3)


def test_what_is_not_committed_was_not_written_and_the_neighbour_is(parts: DriverParts) -> None:
    parts.refused["a"] = SinkFencedError("claimed since under epoch 9.9")
    plan = plan_of(work("a", {0: 5, 1: 0}), work("b", {0: 0}))
    results = commit_staged(plan, staged(plan, [chunk("a", 0, [5])], [chunk("a", 1, [2]), chunk("b", 0, [7])]))
    a, b = merge_results(results, 0)
    assert (a.positions, a.rows, a.bytes, a.held) == ({}, 0, 0, (0, 1))
    assert (a.error_code, a.error, a.retryable) == ("sink_fenced", "claimed since under epoch 9.9", False)
    assert (b.positions, b.error_code) == ({0: 8}, None)


def test_an_internal_error_of_one_table_is_not_its_neighbours(parts: DriverParts) -> None:
    parts.refused["a"] = KeyError("secret value")
    plan = plan_of(work("a", {0: 5}), work("b", {0: 0}))
    a, b = merge_results(commit_staged(plan, staged(plan, [chunk("a", 0, [5]), chunk("b", 0, [7])])), 0)
    assert (a.error_code, parts.dropped) == ("internal", 1)
    assert "secret" not in (a.error or "")
    assert b.error_code is None


def test_a_good_prefix_is_committed_beside_the_error_of_what_follows(parts: DriverParts) -> None:
    plan = plan_of(work("a", {0: 0}))
    (result,) = merge_results(commit_staged(plan, staged(plan, [chunk("a", 0, [1, 2, 3], frozenset({2}))])), 0)
    assert parts.committed() == [("a", [[0, 1]], {0: (0, 2)})]
    assert (result.positions, result.error_code) == ({0: 2}, "change_undecodable")


def test_a_refusal_behind_a_staged_prefix_leaves_the_prefix_to_commit(parts: DriverParts) -> None:
    parts.bad = {(0, 3): ValueRefusedError("too long", 0, 3)}
    plan = plan_of(work("a", {0: 0}))
    (result,) = merge_results(commit_staged(plan, staged(plan, [chunk("a", 0, [1, 2, 3, 4])])), 0)
    assert parts.committed() == [("a", [[0, 1], [0, 2]], {0: (0, 3)})]
    assert (result.positions, result.error_code, result.rows) == ({0: 3}, "value_refused", 2)


def test_bad_changes_are_kept_by_the_driver_before_the_commit(
    parts: DriverParts, letters: RecordingQuarantine, quarantine: RecordingQuarantine
) -> None:
    parts.bad = {(0, 4): ValueRefusedError("too long", 0, 4)}
    plan = plan_of(msgspec.structs.replace(work("a", {0: 0}), quarantine_left=5), dead_letters=BOX)
    tasks = staged(plan, [chunk("a", 0, [1, 2, 3, 4], frozenset({2}))])
    assert (letters.kept, quarantine.kept) == ([], []), "not before it is known whether they are passed"
    (result,) = merge_results(commit_staged(plan, tasks), 0)
    assert letters.kept == [(2, "change_undecodable"), (4, "value_refused")]
    assert letters.originals[0].value == b"{"
    assert (result.positions, result.quarantined) == ({0: 5}, 2)


@pytest.mark.parametrize("fenced", [True, False])
def test_what_cannot_be_kept_or_committed_is_not_passed(
    parts: DriverParts, letters: RecordingQuarantine, fenced: bool
) -> None:
    if fenced:
        parts.refused["a"] = SinkFencedError("over")
    else:
        letters.error = QuarantineUnavailableError("no broker")
    plan = plan_of(msgspec.structs.replace(work("a", {0: 0}), quarantine_left=5), dead_letters=BOX)
    (result,) = merge_results(commit_staged(plan, staged(plan, [chunk("a", 0, [1, 2], frozenset({2}))])), 0)
    assert (letters.kept, parts.commits) == ([], [])
    assert (result.positions, result.quarantined) == ({}, 0)
    assert result.error_code == ("sink_fenced" if fenced else "quarantine_unavailable")


def test_of_two_tasks_that_met_different_tables_the_second_is_read_again(parts: DriverParts) -> None:
    plan = plan_of(work("a", {0: 0, 1: 0}))
    first, second = staged(plan, [chunk("a", 0, [1])], [chunk("a", 1, [1])])
    met = [
        msgspec.structs.replace(
            task, staged=tuple(msgspec.structs.replace(each, source_table=table) for each in task.staged)
        )
        for task, table in ((first, ORDERS), (second, ("d", "s", "items")))
    ]
    (result,) = merge_results(commit_staged(plan, met), 0)
    assert parts.committed() == [("a", [[0, 1]], {0: (0, 2)})]
    assert parts.commits[0].source_table == ORDERS
    assert (result.positions, result.held, result.error_code, result.retryable) == ({0: 2}, (1,), "sink_moved", True)
    assert "d.s.orders and of d.s.items" in (result.error or "")


def test_a_sink_that_is_silent_is_asked_once_for_all_tables(
    parts: DriverParts, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(commits, "silent_sinks", SilentSinks(lambda: now[0]))

    def silent(commit: Commit) -> None:
        parts.commits.append(commit)
        now[0] += SILENT_SECONDS + 1
        raise SinkSilentError("no answer")

    monkeypatch.setattr(parts, "commit", silent)
    plan = plan_of(work("a", {0: 0}), work("b", {0: 0}))
    a, b = merge_results(commit_staged(plan, staged(plan, [chunk("a", 0, [1]), chunk("b", 0, [1])])), 0)
    assert [each.claim.table for each in parts.commits] == ["a"]
    assert (a.is_silent, a.error_code, b.error_code) == (True, "sink_unavailable", "sink_unavailable")


def test_without_anything_staged_nothing_is_done(parts: DriverParts) -> None:
    plan = plan_of(work("a", {0: 5}))
    tasks = staged(plan, [chunk("a", 0, [1])])
    assert commit_staged(plan, tasks) is tasks
