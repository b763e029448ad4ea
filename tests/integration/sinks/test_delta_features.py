"""Delta tables whose declarations delta-rs does not obey, or that do not permit a commit: each error shows why."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from headgate.config.error_values import VALUES_IN_ERRORS
from headgate.sinks.contract import SinkRefusedError
from integration.sinks.contract import batch_of, claim_of, upsert
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
CONSTRAINT = properties(protocol(1, 3), constraints__short="value <> 'secret'")


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


@pytest.mark.parametrize(
    ("edit", "why"), [(APPEND_ONLY, "table is append-only"), (CONSTRAINT, "rows violate a constraint of the table")]
)
def test_what_a_table_forbids_is_no_conflict_and_shows_no_value(
    bench: DeltaBench, edit: Edit, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = claim_of(bench, 1)
    bench.sink.claim(claim)
    bench.sink.writer().apply(batch_of(claim, 5, upsert(5, 1, "first")))
    declare(bench, edit)
    before = set(Path(bench.path).rglob("*.parquet"))
    with pytest.raises(SinkRefusedError, match=why) as refused:
        bench.sink.writer().apply(batch_of(claim, 6, upsert(6, 1, "secret")))
    assert "secret" not in str(refused.value)
    assert refused.value.__suppress_context__
    assert len(set(Path(bench.path).rglob("*.parquet")) - before) <= 1, "it was tried once"
    if edit is CONSTRAINT:
        monkeypatch.setenv(VALUES_IN_ERRORS, "true")
        with pytest.raises(SinkRefusedError, match="secret"):
            bench.sink.writer().apply(batch_of(claim, 6, upsert(6, 1, "secret")))


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


def test_a_column_that_only_begins_as_those_of_a_merge_is_written(tmp_path: Path) -> None:
    bench = with_columns(tmp_path, "__delta_rs_mine", "__delta_rs_c_other", "value", appends=False)
    claim = claim_of(bench, 1)
    bench.sink.claim(claim)
    for offset, value in ((5, "a"), (6, "b")):
        bench.sink.writer().apply(batch_of(claim, offset, upsert(offset, 1, value)))
    assert [row["value"] for row in bench.records()] == ["b"]
