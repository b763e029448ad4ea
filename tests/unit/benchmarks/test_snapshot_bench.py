"""The figures of ``headgate bench snapshot``, from turns that took known times."""

import pytest
import typer

from headgate_lab.benchmarks.command import snapshot
from headgate_lab.benchmarks.snapshot import Turn, snapshot_figures, worst_ratios

ROWS = 1_000
MIB = 1 << 20


def turns(headgate: list[float], debezium: list[float], copy: list[float]) -> dict[str, list[Turn]]:
    spent = {"spark": 0.002, "workers": 0.004}
    return {
        "headgate": [Turn(seconds, [1.0, 9.0, 2.0], spent) for seconds in headgate],
        "debezium": [Turn(seconds, [4.0]) for seconds in debezium],
        "copy": [Turn(seconds, []) for seconds in copy],
    }


def test_a_ratio_is_the_median_of_those_of_each_round() -> None:
    figures = snapshot_figures(turns([2, 4, 5], [8, 8, 40], [1, 1, 1]), ROWS, 3 * MIB)
    assert (figures["ratio_to_debezium"].value, figures["ratio_to_debezium"].n) == (4, 3)
    assert figures["ratio_to_copy"].value == 0.25
    assert figures["headgate_rows_per_s"].value == 250
    assert (figures["headgate_memory_mb"].value, figures["headgate_cpu_us_workers"].value) == (3, 4)


def test_the_stall_is_the_longest_wait_of_a_round() -> None:
    figures = snapshot_figures(turns([2], [8], [1]), ROWS, MIB)
    assert figures["headgate_writer_stall_ms"].value == 9
    assert "copy_writer_stall_ms" not in figures, "no statement ended during the copy"


def test_the_slower_database_is_the_one_that_counts() -> None:
    by_database = {
        f"{name}_{figure}": value
        for name, seconds in (("postgresql", [2.0]), ("mariadb", [4.0]))
        for figure, value in snapshot_figures(turns(seconds, [8], [1]), ROWS, MIB).items()
    }
    assert {name: ratio.value for name, ratio in worst_ratios(by_database).items()} == {
        "ratio_to_debezium": 2,
        "ratio_to_copy": 0.25,
    }


def test_a_database_that_is_not_measured_is_refused() -> None:
    with pytest.raises(typer.BadParameter, match=r"oracle.*postgresql, mariadb"):
        snapshot(database=["oracle"])
