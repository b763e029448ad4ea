"""A task whose tables have column options: what reaches the sink, and what is set aside."""

import msgspec

from headgate.config.columns import ColumnOptions
from headgate.formats.shaping import SaltUnavailableError, Shaping
from headgate.records.control import WITHHELD_HEADER
from headgate.replication import task_run
from headgate.replication.bad_changes import Original
from headgate.replication.feed_parts import FeedParts
from headgate.replication.frames import Chunk
from headgate.replication.plan import BatchPlan, SpanWork

from .conftest import BOX, SPEC, RecordingParts, RecordingQuarantine, by_table, run, work

OPTIONS = ColumnOptions.model_validate(
    {"rename": {"id": "number"}, "exclude": ["gone"], "mask": {"a": {"keep_last": 1}}}
)


def events(*values: object) -> Chunk:
    """Rows 0, 1, … with that value in column a."""
    offsets = list(range(len(values)))
    rows = [{"id": number, "a": value, "gone": "secret"} for number, value in zip(offsets, values, strict=True)]
    return Chunk(
        "t.a", 0, offsets=offsets, appended_ms=offsets,
        keys=[msgspec.json.encode({"id": number}) for number in offsets],
        values=[msgspec.json.encode({"op": "c", "after": row}) for row in rows],
    )  # fmt: skip


def test_the_sink_gets_shaped_changes(parts: RecordingParts) -> None:
    parts.shaped = Shaping(OPTIONS, {})
    run([work("a", {0: 0})], [events("one", None)])
    (batch,) = parts.batches
    assert [(change.key, change.row) for change in batch.changes] == [
        ({"number": 0}, {"number": 0, "a": "**e"}),
        ({"number": 1}, {"number": 1, "a": None}),
    ]


def test_a_change_that_cannot_be_masked_stops_the_table_in_front_of_it(parts: RecordingParts) -> None:
    parts.shaped = Shaping(OPTIONS, {})
    ((_, result),) = by_table(run([work("a", {0: 0})], [events("one", 22, "three")]))
    assert (result.error_code, result.positions) == ("change_undecodable", {0: 1})
    assert "partition 0, offset 1: column a has a value of type int" in str(result.error)
    assert [change.offset for change in parts.batches[0].changes] == [0]


def with_dead_letters(*values: object) -> list[SpanWork]:
    works = [msgspec.structs.replace(work("a", {0: 0}), quarantine_left=9)]
    task_run.run_task(BatchPlan(SPEC, tuple(works), BOX), [events(*values)])
    return works


def test_a_bad_change_is_set_aside_without_its_content(parts: RecordingParts, quarantine: RecordingQuarantine) -> None:
    parts.shaped, parts.hides = Shaping(OPTIONS, {}), True
    with_dead_letters("one", 22, "three")
    assert quarantine.kept == [(1, "change_undecodable")]
    assert quarantine.originals == [Original(None, None, [(WITHHELD_HEADER, None)], 1)]
    assert [change.offset for change in parts.batches[0].changes] == [0, 2]


def test_with_columns_that_are_only_renamed_it_keeps_its_content(
    parts: RecordingParts, quarantine: RecordingQuarantine
) -> None:
    parts.shaped = Shaping(OPTIONS, {})
    with_dead_letters(22)
    (original,) = quarantine.originals
    assert original.value is not None


def test_a_table_waits_for_its_salt(parts: RecordingParts) -> None:
    def shaping(*_: object) -> Shaping:
        raise SaltUnavailableError("mask.sha256: cannot read salt: No such file or directory")

    parts.shaping = shaping  # type: ignore[method-assign]
    ((_, result),) = by_table(run([work("a", {0: 0})], [events("one")]))
    assert (result.error_code, result.retryable, result.positions) == ("mask_salt", True, {})
    assert "a: topic t.a, partition 0, from offset 0 on: mask.sha256: cannot read salt" in str(result.error)


def parts_of(**more: object) -> FeedParts:
    return FeedParts(
        msgspec.json.encode(
            {
                "feed": "f",
                "source": {"topics": ["t"], "tables": ["s.a", "s.b"]},
                "sink": {"type": "postgresql", "dsn": "dbname=x"},
                "columns": {"rename": {"x": "y"}},
                **more,
            }
        ).decode()
    )


def test_each_table_is_shaped_by_its_own_options() -> None:
    made = parts_of(tables={"s.b": {"columns": {}, "keyless": "append"}})
    shaping = made.shaping("t", "s.a")
    assert shaping is not None
    assert shaping is made.shaping("t", "s.a")
    assert made.shaping("t", "s.b") is None


def test_a_topic_hides_columns_if_one_of_its_tables_does() -> None:
    assert not parts_of().hides_columns("t")
    assert parts_of(tables={"s.b": {"columns": {"exclude": ["x"]}}}).hides_columns("t")
