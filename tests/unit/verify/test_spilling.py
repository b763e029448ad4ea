"""More rows than fit into memory come in the order of their keys' texts."""

import pytest

from headgate.verify import spilling
from headgate.verify.contract import Row


@pytest.mark.parametrize("count", [0, 1, 10, 11, 95])
def test_runs_in_files_are_merged_with_the_rest(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    monkeypatch.setattr(spilling, "RUN_ROWS", 10)
    rows: list[Row] = [(None if number == 7 else str(number), "ä", None) for number in range(count)]
    shuffled = [*rows[1::2], *reversed(rows[::2])]
    assert list(spilling.sorted_rows(shuffled, 1)) == sorted(rows, key=lambda row: row[0] or "")
