"""The report on a frozen sink: what decides, and what is a measure."""

import msgspec

from headgate_lab.chaos.frozen_sink import FrozenSinkReport

GOOD = FrozenSinkReport(
    before_ms=(90.0, 100.0, 110.0),
    during_ms=(100.0, 5_000.0),
    named_after_seconds=9.0,
    said_after_seconds=41.0,
    missing=0,
)


def test_times_are_goals_and_decide_nothing() -> None:
    figures = GOOD.figures()
    assert (figures["healthy_frozen_max_ms"].value, figures["healthy_frozen_max_ms"].goal) == (5_000, 1_000)
    assert figures["healthy_before_p50_ms"].value == 100
    assert GOOD.holds()


def test_what_is_missing_left_over_or_not_said_decides() -> None:
    replace = msgspec.structs.replace
    assert not replace(GOOD, missing=1).holds()
    assert not replace(GOOD, left_over=("7 java",)).holds()
    assert not replace(GOOD, said_after_seconds=None).holds()
    assert not replace(GOOD, named_after_seconds=None).holds()
    assert not replace(GOOD, during_ms=()).holds()


def test_what_is_left_over_is_named() -> None:
    report = msgspec.structs.replace(GOOD, left_over=("7 java",)).to_json()
    assert (report["holds"], report["findings"]) == (False, ["7 java"])
