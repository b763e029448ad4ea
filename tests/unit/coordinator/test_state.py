"""How ``evolve`` folds records, key by key, and what is passed over."""

from headgate.coordinator.core.state import CoordinatorState, digest, evolve, new_state
from headgate.records.base import Key, Record
from headgate.records.control import (
    Epoch,
    SessionEnded,
    SpanProgressed,
    SyncAnswered,
    TaskReported,
    TaskState,
)
from headgate.records.keys import AnswerKey, OwnerKey, ProgressKey, SessionKey, TaskKey
from support import build


def folded(*records: tuple[Key, Record | None]) -> CoordinatorState:
    state = new_state(0)
    for offset, (key, value) in enumerate(records):
        evolve(state, key, value, offset)
    return state


def task(epoch: Epoch, state: TaskState) -> tuple[Key, TaskReported]:
    return TaskKey("f", "t", "a", "s"), build.task_reported(epoch=epoch, state=state)


def progress(epoch: Epoch, offset: int) -> tuple[Key, SpanProgressed]:
    return ProgressKey("f", "t", "a", "s"), build.span_progressed(epoch=epoch, positions={0: offset})


def answer(rev: int | None) -> tuple[Key, SyncAnswered]:
    return AnswerKey("a", "s", 0), SyncAnswered(rev, 1, 0, 0)


def test_a_lower_epoch_or_rev_changes_nothing_and_an_equal_one_replaces() -> None:
    old, new = Epoch(1, 9), Epoch(2, 1)
    stopped = folded(task(new, TaskState.STOPPED))
    assert digest(folded(task(new, TaskState.STOPPED), task(old, TaskState.REPLICATING))) == digest(stopped)
    assert digest(folded(task(new, TaskState.STOPPING), task(new, TaskState.STOPPED))) == digest(stopped)
    assert digest(folded(progress(new, 5), progress(old, 9))) == digest(folded(progress(new, 5)))
    assert digest(folded(answer(4), answer(None), answer(3))) == digest(folded(answer(4)))
    ended = [(SessionKey("a", "s"), SessionEnded(rev, f"by {rev}", 0)) for rev in (7, 7, 8)]
    assert folded(*ended).ended["a", "s"].reason == "by 8"


def test_a_tombstone_deletes_whatever_was_there() -> None:
    key, value = task(Epoch(1, 1), TaskState.STOPPED)
    state = folded((key, value), progress(Epoch(1, 1), 3), (key, None))
    assert not state.tasks
    assert list(state.index.words["a", "s"].in_order())
    evolve(state, ProgressKey("f", "t", "a", "s"), None, 9)
    assert digest(state) == digest(new_state(0))
    assert not state.index.words


def test_a_value_that_is_not_of_its_keys_type_is_passed_over() -> None:
    state = folded((SessionKey("a", "s"), SyncAnswered(1, 1, 0, 0)))
    assert digest(state) == digest(new_state(0))


def test_a_resignation_is_no_lease() -> None:
    records = [
        (OwnerKey(0), build.owner_announced(owner_rev=rev, version="v", lease_seconds=lease))
        for rev, lease in ((None, 3.0), (0, 0.0))
    ]
    state = folded(*records)
    assert (state.owner_rev, state.lease_seconds) == (0, 3.0)
    evolve(
        state,
        OwnerKey(1),
        build.owner_announced(owner_id="other shard", owner_rev=9, version="v", lease_seconds=8.0),
        9,
    )
    assert (state.owner_rev, state.lease_seconds) == (0, 3.0)
