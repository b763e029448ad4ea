"""A line that says what one said a moment ago is left out, and counted."""

import logging

import pytest

from headgate.eventlog.repeats import KINDS_MAX, REPEAT_SECONDS, Repeats

FAILED = "FAIL [%s] [thrd:%s]: 127.0.0.1:9092/1: Connect failed: Connection refused (after %dms in state CONNECT)"


class Log:
    def __init__(self, level_max: int = logging.CRITICAL) -> None:
        self.now = 0.0
        self._repeats = Repeats(level_max, lambda: self.now)

    def writes(self, text: str, *values: object) -> str | None:
        """What is written of it; None, if it is left out."""
        record = logging.LogRecord("x", logging.WARNING, "", 0, text, values, None)
        return record.getMessage() if self._repeats.filter(record) else None


def test_what_is_the_same_but_for_its_particulars_is_left_out_and_counted() -> None:
    log = Log()
    assert log.writes(FAILED, "reader#consumer-7", "a", 0) == FAILED % ("reader#consumer-7", "a", 0)
    for number in range(5):
        assert log.writes(FAILED, f"reader#consumer-{number}", "b", number) is None
    log.now = REPEAT_SECONDS
    assert log.writes(FAILED, "c", "d", 3) == FAILED % ("c", "d", 3) + " (and 5 lines like it before)"
    assert log.writes(FAILED, "c", "d", 3) is None


@pytest.mark.parametrize(
    "others",
    [
        ("session %s: heartbeat 2 not acknowledged within 0.4 s", "0123456789ab", "ba9876543210"),
        ("%s records were not acknowledged", "1 of 1", "3 of 20"),
    ],
)
def test_sessions_and_counts_are_particulars(others: tuple[str, str, str]) -> None:
    log, (text, first, second) = Log(), others
    assert log.writes(text, first) is not None
    assert log.writes(text, second) is None


def test_another_broker_or_another_word_is_news() -> None:
    log = Log()
    assert all(log.writes("127.0.0.1:%d: refused", port) for port in (1, 2, 3))
    assert log.writes("127.0.0.1:1: timed out")


def test_what_is_remembered_is_bounded() -> None:
    log = Log()
    for number in range(KINDS_MAX + 1):
        assert log.writes(f"kind {number}")
    assert log.writes("kind 0"), "forgotten, and written again"


def test_what_is_above_a_level_is_always_written() -> None:
    log = Log(level_max=logging.INFO)
    assert [log.writes("lost") for _ in range(3)] == ["lost"] * 3
