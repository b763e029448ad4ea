"""Delta tables whose declarations delta-rs does not obey, or that do not permit a commit: each error shows why."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from msgspec.structs import replace

from headgate.config.error_values import VALUES_IN_ERRORS
from headgate.formats.change import Change
from headgate.sinks.contract import (
    ChangeRefusedError,
    Claim,
    OffsetRange,
    Quarantine,
    SinkRefusedError,
    ValueRefusedError,
)
from headgate.sinks.row_copying import CopiedRows, RowsRefusedError
from integration.sinks.contract import batch_of, claim_of, delete, upsert
from integration.sinks.delta_bench import DeltaBench

pytestmark = pytest.mark.integration

Edit = Callable[[dict[str, Any]], None]


@pytest.fixture
def bench(tmp_path: Path) -> DeltaBench:
    return DeltaBench(tmp_path, appends=False)


def declare(bench: DeltaBench, edit: Edit) -> None:
    """As the table would be if another engine had created it."""
    for log in (Path(bench.path) / "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in log.read_text().splitlines()]
        for action in actions:
            edit(action)
        log.write_text("".join(f"{json.dumps(action)}\n" for action in actions))


def protocol(reader: int, writer: int, *features: str, read: bool = False) -> Edit:
    def edit(action: dict[str, Any]) -> None:
        if "protocol" in action:
            action["protocol"] = {"minReaderVersion": reader, "minWriterVersion": writer}
            action["protocol"] |= {"writerFeatures": features} if features else {}
            action["protocol"] |= {"readerFeatures": features} if read else {}

    return edit


def properties(edit_protocol: Edit, **given: str) -> Edit:
    def edit(action: dict[str, Any]) -> None:
        edit_protocol(action)
        if "metaData" in action:
            action["metaData"]["configuration"] |= {
                f"delta.{name.replace('__', '.')}": text for name, text in given.items()
            }

    return edit


APPEND_ONLY = properties(protocol(1, 2), appendOnly="true")


@pytest.mark.parametrize(
    ("edit", "why"),
    [
        (protocol(9, 9), "Unsupported minimum reader version 9"),
        (protocol(3, 7, "wings", read=True), "Feature 'wings' is not supported"),
        (protocol(1, 7, "wings"), "wings"),
        (protocol(1, 7, "clustering", "domainMetadata"), "ClusteredTable"),
        (properties(protocol(1, 7, "inCommitTimestamp"), enableInCommitTimestamps="true"), "InCommitTimestamp"),
    ],
)
def test_features_that_are_not_supported_are_no_conflict(bench: DeltaBench, edit: Edit, why: str) -> None:
    declare(bench, edit)
    with pytest.raises(SinkRefusedError, match=r"features that delta-rs does not write.*DROP FEATURE") as refused:
        bench.sink.claim(claim_of(bench, 1))
    assert why in str(refused.value)


def filled(bench: DeltaBench, edit: Edit, *changes: Change) -> tuple[Claim, int]:
    """A claim on the table, which has one row and then gets the declaration, and the next offset."""
    claim = claim_of(bench, 1)
    bench.sink.claim(claim)
    bench.sink.writer().apply(batch_of(claim, 5, upsert(5, 1, "first"), *changes))
    declare(bench, edit)
    return claim, 6 + len(changes)


def test_an_append_only_table_is_no_conflict(bench: DeltaBench) -> None:
    claim, at = filled(bench, APPEND_ONLY)
    before = set(Path(bench.path).rglob("*.parquet"))
    with pytest.raises(SinkRefusedError, match="table is append-only"):
        bench.sink.writer().apply(batch_of(claim, at, upsert(at, 1, "second")))
    assert len(set(Path(bench.path).rglob("*.parquet")) - before) <= 1, "it was tried once"


CHECK = properties(protocol(1, 3), constraints__short="value <> 'bad' AND id < 90")


def invariant(action: dict[str, Any]) -> None:
    if "metaData" in action:
        schema = json.loads(action["metaData"]["schemaString"])
        condition = {"expression": {"expression": "value <> 'bad' AND id < 90"}}
        schema["fields"][1]["metadata"]["delta.invariants"] = json.dumps(condition)
        action["metaData"]["schemaString"] = json.dumps(schema)


CONDITIONS = [
    pytest.param(CHECK, r"constraint short \(value <> 'bad' AND id < 90\).*DROP CONSTRAINT short", id="check"),
    pytest.param(invariant, r"the invariant of column value \(value <> 'bad' AND id < 90\)", id="invariant"),
]


@pytest.mark.parametrize("appends", [False, True])
@pytest.mark.parametrize(("edit", "why"), CONDITIONS)
def test_a_change_that_violates_a_constraint_is_found_and_set_aside(
    tmp_path: Path, edit: Edit, why: str, appends: bool
) -> None:
    bench = DeltaBench(tmp_path, appends=appends)
    claim, at = filled(bench, edit)
    changes = [upsert(at, 2, "a"), upsert(at + 1, 3, "bad"), upsert(at + 2, 91, "b"), upsert(at + 3, 4, None)]
    changes.append(upsert(at + 4, 5, "c"))
    batch = batch_of(claim, at, *changes)
    assert bench.sink.writer().apply(batch).positions == {0: at + 1}, "up to the first one"
    rest = replace(batch, ranges=batch.ranges | {0: OffsetRange(at + 1, at + 5)}, changes=changes[1:])
    with pytest.raises(ValueRefusedError, match=rf"shop\.orders: the row violates {why}") as refused:
        bench.sink.writer().apply(rest)
    assert (refused.value.partition, refused.value.offset) == (0, at + 1)
    kept: list[ChangeRefusedError] = []
    done = bench.sink.writer().apply(replace(rest, quarantine=Quarantine(kept.extend, most=9, patient=False)))
    assert [each.offset for each in kept] == [at + 1, at + 2, at + 3], "NULL does not meet a condition either"
    assert (done.kept, bench.sink.positions(claim)[0]) == (3, at + 5)
    assert bench.rows() == {1: "first", 2: "a", 5: "c"}


def test_a_row_that_was_corrected_within_a_batch_and_a_deleted_one_meet_a_condition(bench: DeltaBench) -> None:
    claim, at = filled(bench, CHECK)
    changes = (upsert(at, 2, "bad"), upsert(at + 1, 2, "good"), delete(at + 2, 91), delete(at + 3, 1))
    bench.sink.writer().apply(batch_of(claim, at, *changes))
    assert bench.rows() == {2: "good"}


def test_a_condition_that_delta_rs_cannot_evaluate_is_named_and_not_retried(bench: DeltaBench) -> None:
    claim, at = filled(bench, properties(protocol(1, 3), constraints__like="value RLIKE '^[a-z]'"))
    with pytest.raises(SinkRefusedError, match=r"cannot evaluate constraint like \(.*RLike.*DROP CONSTRAINT like"):
        bench.sink.writer().apply(batch_of(claim, at, upsert(at, 2, "a")))


@pytest.mark.parametrize("shows", [False, True])
def test_a_value_that_the_table_keeps_is_judged_by_the_commit(
    tmp_path: Path, shows: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The event does not have it, so only the commit knows the row."""
    bench = with_columns(tmp_path, "value", "note", appends=False)
    claim, at = filled(bench, properties(protocol(1, 3), constraints__noted="note = 'x' OR value <> 'secret'"))
    monkeypatch.setenv(VALUES_IN_ERRORS, str(shows).lower())
    why = r"violate a constraint of the table \(constraint noted .*id IS NOT"
    with pytest.raises(SinkRefusedError, match=why) as no:
        bench.sink.writer().apply(batch_of(claim, at, upsert(at, 2, "secret")))
    assert ("| secret |" in str(no.value)) == shows
    assert no.value.__suppress_context__


def test_copied_rows_that_violate_a_constraint_are_refused(bench: DeltaBench) -> None:
    claim, _ = filled(bench, CHECK)
    rows = CopiedRows(
        claim=claim,
        positions=bench.sink.positions(claim),
        key=("id",),
        upserts=({"id": 2, "value": "bad"},),
        deletes=(),
    )
    with pytest.raises(RowsRefusedError, match=r"a row violates constraint short \(value"):
        bench.sink.writer().copy(rows)


@pytest.mark.parametrize(("change", "why"), [(upsert(6, 2, "a"), "event does not have it"), (delete(6, 1), "only its")])
def test_a_required_column_that_an_appended_row_lacks_is_a_bad_change(tmp_path: Path, change: Change, why: str) -> None:
    class Bench(DeltaBench):
        columns = pa.schema([("id", pa.int64()), ("value", pa.string()), pa.field("note", pa.string(), nullable=False)])

    bench = Bench(tmp_path, appends=True)
    claim = claim_of(bench, 1)
    bench.sink.claim(claim)
    with pytest.raises(ValueRefusedError, match=rf"column note: .*{why}.*Make it optional"):
        bench.sink.writer().apply(batch_of(claim, 5, replace(change, offset=5)))


def test_a_number_of_columns_that_is_not_one_is_refused(bench: DeltaBench) -> None:
    declare(bench, properties(protocol(1, 2), dataSkippingNumIndexedCols="many"))
    with pytest.raises(SinkRefusedError, match=r"table shop\.orders has .*NumIndexedCols='many'"):
        bench.sink.check([bench.table])


def with_columns(folder: Path, *names: str, appends: bool) -> DeltaBench:
    class Bench(DeltaBench):
        columns = pa.schema(
            [pa.field("id", pa.int64(), nullable=False), *(pa.field(name, pa.string()) for name in names)]
        )

    return Bench(folder, appends=appends)


TAKEN = ("source", "target", "operation", "delete", "target_insert", "target_row_ordinal_in_file", "c_id")


@pytest.mark.parametrize("name", [f"__delta_rs_{name}" for name in TAKEN])
def test_a_column_that_a_merge_adds_is_refused_for_upserts_only(tmp_path: Path, name: str) -> None:
    (tmp_path / "merged").mkdir()
    bench = with_columns(tmp_path / "merged", name, appends=False)
    with pytest.raises(SinkRefusedError, match=rf"column {name}, .*columns\.rename"):
        bench.sink.check([bench.table])
    (tmp_path / "appended").mkdir()
    bench = with_columns(tmp_path / "appended", name, "value", appends=True)
    claim = claim_of(bench, 1)
    bench.sink.claim(claim)
    bench.sink.writer().apply(batch_of(claim, 5, upsert(5, 1, "a")))
    assert bench.records()[0]["value"] == "a"


@pytest.mark.parametrize("appends", [False, True])
def test_a_column_with_which_no_row_is_read_is_refused(tmp_path: Path, appends: bool) -> None:
    bench = with_columns(tmp_path, "__delta_rs_file_id__", appends=appends)
    with pytest.raises(SinkRefusedError, match=r"column __delta_rs_file_id__, .*while it reads them\. Create"):
        bench.sink.check([bench.table])


def test_a_column_of_a_tables_changes_is_refused_where_upserts_write_them(tmp_path: Path) -> None:
    bench = with_columns(tmp_path, "_change_type", appends=False)
    bench.sink.check([bench.table])
    declare(bench, properties(protocol(1, 4), enableChangeDataFeed="true"))
    with pytest.raises(SinkRefusedError, match=r"column _change_type, .*enableChangeDataFeed.*columns\.rename"):
        bench.sink.check([bench.table])
    (tmp_path / "appended").mkdir()
    bench = with_columns(tmp_path / "appended", "_change_type", appends=True)
    declare(bench, properties(protocol(1, 4), enableChangeDataFeed="true"))
    bench.sink.check([bench.table])


def test_a_column_that_only_begins_as_those_of_a_merge_is_written(tmp_path: Path) -> None:
    bench = with_columns(tmp_path, "__delta_rs_mine", "__delta_rs_c_other", "value", appends=False)
    claim = claim_of(bench, 1)
    bench.sink.claim(claim)
    for offset, value in ((5, "a"), (6, "b")):
        bench.sink.writer().apply(batch_of(claim, offset, upsert(offset, 1, value)))
    assert [row["value"] for row in bench.records()] == ["b"]
