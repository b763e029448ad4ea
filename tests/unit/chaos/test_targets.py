"""What a reader of a table notices of a fault, by the times of its commits."""

import pytest

from headgate_lab.chaos.targets.mysql import longest_gaps


@pytest.mark.parametrize(
    ("begin", "end", "longest"),
    [
        (10.5, 10.6, 1.0),  # within a gap: the whole of it counts
        (10.5, 12.0, 1.0),  # it ends as a change becomes visible
        (10.5, 12.1, 4.0),
        (12.5, 13.0, 4.0),
        (9.0, 10.0, None),  # before the first change there is no gap
        (9.0, 10.1, 1.0),
        (16.0, 20.0, None),  # nor behind the last
        (15.9, 20.0, 4.0),
        (0.0, 99.0, 4.0),
    ],
)
def test_the_longest_gap_is_one_that_the_fault_overlaps(begin: float, end: float, longest: float | None) -> None:
    times = {"t": [10.0, 11.0, 12.0, 16.0], "once": [11.0], "never": []}
    assert longest_gaps(times, begin, end) == ({} if longest is None else {"t": longest})
