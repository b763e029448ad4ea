"""What a migration may be asked for, and where it may be done: checked before anything is tried."""

import pytest

from headgate.migration.core.spec import MigrationSpec, MigrationSpecError, parse_spec, written
from headgate.migration.strategies.mariadb_sessions import why_not_mariadb
from headgate.records.migration import MigrationStrategy


def checked(**more: object) -> MigrationSpec:
    given = {"statement": "ALTER TABLE t ADD c int", "database": "mysql://u@h/d", "strategy": MigrationStrategy.ONLINE}
    return parse_spec(written(MigrationSpec(**(given | more))))  # type: ignore[arg-type]


def test_limits_of_load_are_for_what_can_be_slowed_down() -> None:
    assert checked(threads_running_max=1, lag_seconds_max=0.0).threads_running_max == 1
    with pytest.raises(MigrationSpecError, match="at least 1"):
        checked(threads_running_max=0)
    with pytest.raises(MigrationSpecError, match="not negative"):
        checked(lag_seconds_max=-1.0)
    with pytest.raises(MigrationSpecError, match="strategy direct cannot be slowed down"):
        checked(threads_running_max=5, strategy=MigrationStrategy.DIRECT)


def test_instant_first_is_for_what_would_copy() -> None:
    assert checked(prefer_instant=True).prefer_instant
    with pytest.raises(MigrationSpecError, match="strategy direct tries nothing first"):
        checked(prefer_instant=True, strategy=MigrationStrategy.DIRECT)


@pytest.mark.parametrize("version", ["10.11.19-MariaDB-0+deb12u1", "11.4.2-MariaDB"])
def test_mariadb_is_known_by_its_version(version: str) -> None:
    assert why_not_mariadb(version) is None


def test_mysql_is_refused_by_name() -> None:
    assert "MySQL 8.0.36" in str(why_not_mariadb("8.0.36"))
