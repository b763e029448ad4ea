"""A commit of a lake that was overtaken is tried again, so often and no more, and other errors are not."""

import pytest

from headgate.sinks.contract import SinkFencedError, SinkUnavailableError
from headgate.sinks.lake.attempts import ATTEMPTS_MAX, until_committed
from headgate.sinks.lake.tables import ConflictError


class Attempts:
    def __init__(self, *errors: Exception) -> None:
        self.errors, self.made = list(errors), 0

    def __call__(self) -> int:
        self.made += 1
        if self.errors:
            raise self.errors.pop(0)
        return self.made


def test_an_attempt_that_was_overtaken_is_made_again() -> None:
    assert until_committed("writing", Attempts(ConflictError(), ConflictError())) == 3


def test_attempts_that_are_always_overtaken_end() -> None:
    attempts = Attempts(*(ConflictError() for _ in range(ATTEMPTS_MAX)))
    with pytest.raises(SinkUnavailableError, match=f"^writing: {ATTEMPTS_MAX} attempts were overtaken"):
        until_committed("writing", attempts)
    assert attempts.made == ATTEMPTS_MAX


def test_another_error_ends_them_at_once() -> None:
    attempts = Attempts(SinkFencedError("claimed since"))
    with pytest.raises(SinkFencedError):
        until_committed("writing", attempts)
    assert attempts.made == 1
