"""Fixtures for every test; where the broker and the database come from is said in fixtures/servers.py."""

import gc
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from headgate.provisioning.time_scale import scaled_seconds
from headgate.supervision.threads import SUPERVISOR
from headgate_lab.demo.services import JAVA_OPTIONS

sys.path.insert(0, str(Path(__file__).parent))

# Feeds may name secrets in one folder only, and tests put theirs into folders of their own below this one.
os.environ["HEADGATE_SECRETS_DIR"] = tempfile.gettempdir()

# No JVM of the tests lives long enough to win back what its second compiler and a parallel collector cost: Spark's
# start takes 8 s of CPU instead of 13, its first jobs 4 instead of 9.
os.environ.setdefault("JAVA_TOOL_OPTIONS", JAVA_OPTIONS)

pytest_plugins = ["fixtures.parallel", "fixtures.services", "fixtures.capture"]

# No test asserts a time, and neither does the library that makes its examples: a busy machine is not a finding.
settings.register_profile("headgate", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("headgate")


@pytest.fixture(scope="module", autouse=True)
def leaks_stay_here(request: pytest.FixtureRequest) -> Iterator[None]:
    """py4j leaves sockets open; modules that start Spark say so. They are collected in them, not in the next."""
    yield
    if any("ignore::ResourceWarning" in mark.args for mark in request.node.iter_markers("filterwarnings")):
        gc.collect()


@pytest.fixture(autouse=True)
def no_thread_crashes() -> Iterator[None]:
    """A test fails if a background thread crashes in it. One that wants a crash resets the supervisor at its end."""
    SUPERVISOR.reset()
    yield
    crashes = [str(crash) for crash in SUPERVISOR.fatal]
    SUPERVISOR.reset()
    assert crashes == []


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
