"""Fixtures for every test; where the broker and the database come from is said in fixtures/servers.py."""

import gc
import logging
import os
import signal
import sys
import tempfile
from asyncio import BaseEventLoop
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from headgate.provisioning.time_scale import scaled_seconds
from headgate.supervision.threads import SUPERVISOR
from headgate_lab.demo.services import JAVA_OPTIONS

sys.path.insert(0, str(Path(__file__).parent))

# Feeds may name secrets in one folder only, and tests put theirs into folders of their own below this one.
os.environ["HEADGATE_SECRETS_DIR"] = tempfile.gettempdir()

# The same for the folders that sinks write tables to.
os.environ["HEADGATE_ALLOWED_FOLDERS"] = tempfile.gettempdir()

# Named connections are described here by the tests of this process (support/connections.py).
os.environ["HEADGATE_CONNECTIONS"] = str(Path(tempfile.mkdtemp(prefix="headgate-connections-"), "connections.yaml"))

# No JVM of the tests lives long enough to win back what its second compiler and a parallel collector cost: Spark's
# start takes 8 s of CPU instead of 13, its first jobs 4 instead of 9.
os.environ.setdefault("JAVA_TOOL_OPTIONS", JAVA_OPTIONS)

# A script that starts the tests with `&` lets them ignore Ctrl-C, and every process that they interrupt inherits that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest_plugins = [
    "fixtures.parallel",
    "fixtures.services",
    "fixtures.capture",
    "fixtures.left_by_spark",
    "fixtures.registry_ids",
]

# No test asserts a time, and neither does the library that makes its examples: a busy machine is not a finding.
settings.register_profile("headgate", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("headgate")


_open_loops: dict[int, str] = {}
"""The asyncio loops that are not closed, by identity, and the test that made each."""


def _loop_made(self: BaseEventLoop, *, made: Callable[..., None] = BaseEventLoop.__init__) -> None:
    made(self)
    _open_loops[id(self)] = os.environ.get("PYTEST_CURRENT_TEST", "no test")


def _loop_closed(self: BaseEventLoop, *, closed: Callable[..., None] = BaseEventLoop.close) -> None:
    _open_loops.pop(id(self), None)
    closed(self)


BaseEventLoop.__init__ = _loop_made  # type: ignore[method-assign]
BaseEventLoop.close = _loop_closed  # type: ignore[method-assign]


@pytest.fixture(scope="module", autouse=True)
def loops_are_closed() -> Iterator[None]:
    """A module fails if it leaves an event loop open: its warning would fail whatever runs when it is collected."""
    before = set(_open_loops)
    yield
    left = [made_in for loop, made_in in _open_loops.items() if loop not in before]
    for loop in set(_open_loops) - before:
        del _open_loops[loop]
    assert left == [], "event loops that were never closed, by the test that made them"


@pytest.fixture(autouse=True)
def no_thread_crashes() -> Iterator[None]:
    """A test fails if a background thread crashes in it. One that wants a crash resets the supervisor at its end."""
    SUPERVISOR.reset()
    yield
    crashes = [str(crash) for crash in SUPERVISOR.fatal]
    SUPERVISOR.reset()
    assert crashes == []


@pytest.fixture(autouse=True)
def no_log_outlives_its_stream() -> Iterator[None]:
    """A command that ran in this process has logged to a stderr of its own; later records would be errors there."""
    yield
    root = logging.getLogger()
    root.handlers[:] = [
        each for each in root.handlers if not (isinstance(each, logging.StreamHandler) and each.stream.closed)
    ]


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """Thousands of tests live to the end: from here on the collector does not look through them again each time."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """The bound of each test (pyproject.toml) holds on a slow machine too (HEADGATE_TIME_SCALE)."""
    if config.getoption("timeout") is None:
        config.option.timeout = scaled_seconds(float(config.getini("timeout")))
