"""What values of a topic begin with: told by a task that met it often, cut where it pays, put back where needed."""

import msgspec
import pytest

from headgate.replication import heads, task_run
from headgate.replication.frames import Chunk
from headgate.replication.heads import KnownHeads
from headgate.replication.plan import HEAD_ROWS_MIN, BatchPlan, TaskResult

from .conftest import BOX, SPEC, RecordingParts, RecordingQuarantine, chunk, run, work

HEAD = b'{"schema":{"type":"struct","fields":[{"field":"after","fields":[{"field":"id","type":"int64"}]}]},"payload":'


def whole(one: Chunk) -> Chunk:
    return msgspec.structs.replace(one, values=[HEAD + (value or b"") + b"}" for value in one.values])


def test_a_task_tells_what_many_values_of_a_topic_began_with(parts: RecordingParts) -> None:
    few, many = chunk("a", 0, range(10)), chunk("a", 0, range(10, 10 + HEAD_ROWS_MIN))
    assert run([work("a", {0: 0})], [whole(few)]).heads == {}
    told = run([work("a", {0: 0})], [whole(few), whole(many)])
    assert told.heads == {"t.a": HEAD}
    assert msgspec.json.decode(msgspec.json.encode(told), type=TaskResult) == told
    assert run([work("a", {0: 0})], [few, many]).heads == {}, "nothing can be cut off them"


def test_values_that_came_without_their_head_are_the_same_changes(parts: RecordingParts) -> None:
    one = chunk("a", 0, range(5))
    result = run([work("a", {0: 0})], [whole(one)])
    without = run([work("a", {0: 0})], [msgspec.structs.replace(one, head=HEAD)])
    assert parts.batches[0].changes == parts.batches[1].changes
    assert parts.batches[0].changes[0].semantics == {"id": "int64"}
    assert without.heads == {}
    (one_span,), (other_span,) = result.spans, without.spans
    assert one_span.positions == other_span.positions == {0: 5}
    assert one_span.bytes == other_span.bytes + 5, "all but the closing braces count"


def test_a_bad_value_is_set_aside_as_it_was_written(parts: RecordingParts, quarantine: RecordingQuarantine) -> None:
    span = msgspec.structs.replace(work("a", {0: 0}), quarantine_left=9)
    cut = msgspec.structs.replace(chunk("a", 0, range(4), frozenset({2})), head=HEAD)
    (result,) = task_run.run_task(BatchPlan(SPEC, (span,), BOX), [cut]).spans
    assert (result.positions, result.quarantined) == ({0: 4}, 1)
    assert [original.value for original in quarantine.originals] == [HEAD + b"{}"]


def test_heads_are_cut_of_the_topics_with_most_rows_if_they_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads, "HEADS_MAX", 2)
    monkeypatch.setattr(heads, "TOPICS_MAX", 3)
    known = KnownHeads()
    known.learn({"a": b"A", "b": b"B", "c": b"C"})
    enough = HEAD_ROWS_MIN
    assert known.worth_cutting({"a": enough, "b": enough - 1, "x": enough}) == (("a", b"A"),)
    assert known.worth_cutting({"a": enough, "b": enough + 1, "c": enough + 2}) == (("c", b"C"), ("b", b"B"))
    known.learn({"a": b"again", "d": b"D"})
    assert known.worth_cutting({"a": enough, "b": enough}) == (("a", b"again"),), "b was the one known longest"
