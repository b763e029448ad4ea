"""What the bench of lakes expects of a table, and what it refuses."""

import random
from pathlib import Path

import pyarrow as pa
import pytest
from typer.testing import CliRunner

from headgate.app.exit_codes import ExitCode
from headgate_lab.benchmarks import lake_options
from headgate_lab.benchmarks.command import app
from headgate_lab.benchmarks.lake_tables import COLUMNS, KINDS, latest_rows, rows_of
from headgate_lab.benchmarks.parts import BenchError
from headgate_lab.benchmarks.workload import Workload, _RowsOfKeys

OF_KEYS = Workload("bench.public.t", 0, 4, with_schema=False, seed=1, mix="of_keys", rows_before=50)


def test_changes_come_to_the_last_of_each_row_without_those_that_are_deleted() -> None:
    changes = pa.table(
        {"id": [1, 2, 1, 3, 2, 3], "offset": [1, 2, 3, 4, 6, 5], "op": ["c", "c", "u", "c", "d", "u"], "v": [*"abcdef"]}
    )
    assert latest_rows(changes, "op", "offset").sort_by("id")["v"].to_pylist() == ["c", "f"]


def test_rows_that_are_there_before_are_updated_deleted_and_come_back() -> None:
    rows, chooser = _RowsOfKeys(OF_KEYS), random.Random(1)  # noqa: S311
    living = set(range(50))
    seen = set()
    for _ in range(1_000):
        row_id, operation = rows.draw(chooser)
        seen.add(operation)
        assert (operation == b"c") is (row_id not in living)
        living = living - {row_id} if operation == b"d" else living | {row_id}
    assert seen == {b"c", b"u", b"d"}
    assert set(rows.living()) == living


@pytest.mark.parametrize("kind", KINDS)
def test_a_table_begins_with_the_rows_before(kind: str, tmp_path: Path) -> None:
    tables, rows = KINDS[kind](tmp_path / kind), rows_of(OF_KEYS)
    tables.create("t", rows)
    assert (rows.num_rows, rows.schema) == (50, COLUMNS)
    assert tables.rows("t", "upsert", by_recipe=False).num_rows == 50
    assert tables.files("t", by_recipe=False) == (1, 1)


def test_an_unknown_kind_and_missing_packages_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = CliRunner().invoke(app, ["lake", "--kind", "hudi"])
    assert (refused.exit_code, "choose from delta, iceberg" in refused.stderr) == (ExitCode.USAGE, True)
    monkeypatch.setattr(lake_options, "find_spec", lambda _: None)
    with pytest.raises(BenchError, match=r"pip install 'dist/headgate-\S*\.whl\[delta,iceberg\]'"):
        lake_options.check_installed()
