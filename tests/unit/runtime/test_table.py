"""Transition tables as text: both notations, and texts that are no table."""

import pytest

from headgate.runtime.table import read_grid, read_rows


def test_a_grid_names_phases_above_and_signals_beside_them() -> None:
    table = read_grid(
        """
signal  idle   busy
begin   start  -
end     .      stop
""",
        str,
        str,
        str,
        {"-": "never", ".": "keep"},
    )
    assert table == {
        ("idle", "begin"): "start",
        ("busy", "begin"): "never",
        ("idle", "end"): "keep",
        ("busy", "end"): "stop",
    }


@pytest.mark.parametrize("row", ["begin start", "begin start - -"])
def test_a_grid_has_an_entry_for_every_pair(row: str) -> None:
    with pytest.raises(ValueError, match="zip"):
        read_grid(f"signal idle busy\n{row}", str, str, str, {})


def test_rows_continue_and_share_what_every_later_phase_does() -> None:
    table = read_rows(
        """
absent begin:start
# A comment.
*      again:keep end:stop
busy   begin:wait
       end:drain
over   end:-
""",
        str,
        str,
        str,
    )
    assert table == {
        ("absent", "begin"): "start",
        ("busy", "again"): "keep",
        ("busy", "begin"): "wait",
        ("busy", "end"): "drain",
        ("over", "again"): "keep",
    }


def test_a_row_belongs_to_a_phase() -> None:
    with pytest.raises(ValueError, match="must begin with a phase"):
        read_rows("begin:start", str, str, str)
