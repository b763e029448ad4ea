"""Lengths of time as people write them."""

import pytest

from headgate.cli.ages import duration, parse_duration


@pytest.mark.parametrize(
    ("text", "ms"),
    [("30d", 2_592_000_000), ("2.5 h", 9_000_000), ("90min", 5_400_000), ("45s", 45_000), (" 1 d ", 86_400_000)],
)
def test_a_length_of_time_is_a_number_and_a_unit(text: str, ms: int) -> None:
    assert parse_duration(text) == ms
    assert parse_duration(duration(ms)) == ms


@pytest.mark.parametrize("text", ["", "30", "d", "5ms", "-1d", "1.2.3h", "٣d", "1 day"])
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="such as 30d"):
        parse_duration(text)
