"""The option that records the newest level's dumps anew, before the tests look at them."""

import pytest

from golden_logs.histories import ReleasedError, newest_level, release, rewrite


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite-golden-logs", action="store_true", help="record the dumps of the newest schema level anew"
    )
    parser.addoption(
        "--release-golden-logs", action="store_true", help="the newest level is released: its dumps never change again"
    )


def pytest_sessionstart(session: pytest.Session) -> None:
    if session.config.getoption("--rewrite-golden-logs", default=False):
        try:
            rewrite(newest_level())
        except ReleasedError as error:
            raise pytest.UsageError(str(error)) from error
    if session.config.getoption("--release-golden-logs", default=False):
        release(newest_level())
