"""What a migration may be asked for, and where it may be done: checked before anything is tried."""

import math
import threading
import time
from dataclasses import dataclass

import pytest

from headgate.migration.core.spec import MigrationSpec, MigrationSpecError, parse_spec, written
from headgate.migration.strategies.contract import DatabaseLoad
from headgate.migration.strategies.mariadb.sessions import why_not_mariadb
from headgate.migration.strategies.pace import CopyPace
from headgate.records.migration import MigrationStrategy
from support.waiting import END_SECONDS_MAX


def checked(**more: object) -> MigrationSpec:
    given = {"statement": "ALTER TABLE t ADD c int", "database": "shop", "strategy": MigrationStrategy.ONLINE}
    return parse_spec(written(MigrationSpec(**(given | more))))  # type: ignore[arg-type]


def test_limits_of_load_are_for_what_can_be_slowed_down() -> None:
    assert checked(threads_running_max=1, lag_seconds_max=0.0).threads_running_max == 1
    with pytest.raises(MigrationSpecError, match="at least 1"):
        checked(threads_running_max=0)
    with pytest.raises(MigrationSpecError, match="must not be negative"):
        checked(lag_seconds_max=-1.0)
    with pytest.raises(MigrationSpecError, match="strategy direct cannot be slowed down"):
        checked(threads_running_max=5, strategy=MigrationStrategy.DIRECT)


def test_limits_of_lag_name_whom_they_are_about() -> None:
    assert checked(feed_lags_max={"shop": 5.0}).feed_lags_max == {"shop": 5.0}
    with pytest.raises(MigrationSpecError, match="--max-feed-lag must not be negative"):
        checked(feed_lags_max={"shop": -1.0})
    with pytest.raises(MigrationSpecError, match="give a limit with --max-lag"):
        checked(replicas=("shop-2",))
    with pytest.raises(MigrationSpecError, match="strategy direct cannot be slowed down"):
        checked(feed_lags_max={"shop": 5.0}, strategy=MigrationStrategy.DIRECT)


@dataclass
class Busy:
    """A database and a feed that are as they are told to be; counts how often they were asked."""

    lag_seconds: float = 0.0
    why_feed: str = ""
    asked: int = 0

    def load(self) -> DatabaseLoad:
        self.asked += 1
        return DatabaseLoad(1, self.lag_seconds)

    def why(self, limits: object) -> str:
        assert limits == {"shop": 5.0}
        return self.why_feed

    def close(self) -> None:
        """Nothing is held."""


@pytest.mark.parametrize(
    ("lag_seconds", "why_feed", "reason"),
    [
        (9.0, "", "a replica: 9.0 s behind, 2 allowed"),
        (math.inf, "", "a replica does not replicate, or cannot be asked"),
        (1.0, "feed shop is late", "feed shop is late"),
    ],
)
def test_a_copy_stands_still_while_somebody_is_behind(lag_seconds: float, why_feed: str, reason: str) -> None:
    busy, stopping = Busy(lag_seconds, why_feed), threading.Event()
    spec = checked(lag_seconds_max=2.0, feed_lags_max={"shop": 5.0})
    pace = CopyPace(busy, spec, 0.0, stopping, busy)
    waiting = threading.Thread(target=pace.slow_down, args=(0.0,))
    waiting.start()
    deadline = time.monotonic() + 30
    while busy.asked < 2 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert (waiting.is_alive(), pace.reason) == (True, reason)
    busy.lag_seconds, busy.why_feed = 0.0, ""
    waiting.join(END_SECONDS_MAX)
    assert (waiting.is_alive(), pace.reason) == (False, "")


def test_instant_first_is_for_what_would_copy() -> None:
    assert checked(prefer_instant=True).prefer_instant
    with pytest.raises(MigrationSpecError, match="strategy direct tries nothing first"):
        checked(prefer_instant=True, strategy=MigrationStrategy.DIRECT)


@pytest.mark.parametrize("version", ["10.11.19-MariaDB-0+deb12u1", "11.4.2-MariaDB"])
def test_mariadb_is_known_by_its_version(version: str) -> None:
    assert why_not_mariadb(version) is None


def test_mysql_is_refused_by_name() -> None:
    assert "MySQL 8.0.36" in str(why_not_mariadb("8.0.36"))
