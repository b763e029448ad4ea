"""Which errors of the databases pass by themselves: the table is tried again, and nobody has to resume it."""

import psycopg
import pymysql
import pytest

from headgate.sinks.contract import SinkUnavailableError
from headgate.sinks.relational.mysql import faults as mysql
from headgate.sinks.relational.postgresql import faults as postgresql


@pytest.mark.parametrize(
    "state",
    ["08006", "25006", "25P03", "25P04", "40001", "40P01", "53100", "53200", "53300", "55P03", "57014", "57P01",
     "57P02", "57P03", "57P05", "58030"],
)  # fmt: skip
def test_what_passes_at_postgresql(state: str) -> None:
    error = psycopg.errors.lookup(state)("gone")
    assert isinstance(postgresql.sink_error(error, "writing"), SinkUnavailableError)


@pytest.mark.parametrize(
    "number",
    [1040, 1047, 1053, 1129, 1205, 1213, 1226, 1290, 1317, 1792, 1836, 1874, 1927, 1969, 2003, 2006, 2013, 4031],
)
def test_what_passes_at_mysql_and_mariadb(number: int) -> None:
    error = pymysql.OperationalError(number, "gone")
    assert isinstance(mysql.sink_error(error, "writing"), SinkUnavailableError)
