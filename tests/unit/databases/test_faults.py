"""What an error of a driver means, in terms that are the same for every kind of database."""

import psycopg
import pymysql
import pytest
from psycopg import errors

from headgate.databases.faults import Fault
from headgate.databases.mysql import errors as mysql
from headgate.databases.postgresql import errors as postgresql


class OwnState(psycopg.Error):
    """An error with a state that a function of the database made up."""

    sqlstate = "HG001"


class Crashed(psycopg.Error):
    sqlstate = "XX9ZZ"


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (errors.UniqueViolation(), Fault.BETWEEN_ROWS),
        (errors.CheckViolation(), Fault.VALUE),
        (errors.NumericValueOutOfRange(), Fault.VALUE),
        (errors.RaiseException(), Fault.VALUE),
        (OwnState(), Fault.VALUE),
        (Crashed(), Fault.OTHER),
        (errors.UndefinedTable(), Fault.TABLE_MISSING),
        (errors.UndefinedFunction(), Fault.NAME_MISSING),
        (errors.UndefinedColumn(), Fault.ALTERED),
        (errors.InvalidSqlStatementName(), Fault.UNPREPARED),
        (errors.SerializationFailure(), Fault.DEADLOCK),
        (errors.LockNotAvailable(), Fault.LOCK_WAIT),
        (errors.InsufficientPrivilege(), Fault.PERMISSION),
        (errors.ReadOnlySqlTransaction(), Fault.PASSING),
        (errors.AdminShutdown(), Fault.ENDED),
        (errors.QueryCanceled(), Fault.ENDED),
        (errors.DiskFull(), Fault.ENDED),
        (psycopg.OperationalError("the connection is closed"), Fault.LOST),
        (psycopg.ProgrammingError("cannot adapt type"), Fault.OTHER),
        (psycopg.DataError("text fields cannot contain NUL"), Fault.VALUE),
        (errors.SyntaxError(), Fault.OTHER),
    ],
)
def test_postgresql(error: psycopg.Error, fault: Fault) -> None:
    assert postgresql.fault_of(error) is fault


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (pymysql.IntegrityError(1062, "Duplicate entry"), Fault.BETWEEN_ROWS),
        (pymysql.DataError(1406, "Data too long"), Fault.VALUE),
        (pymysql.OperationalError(1644, "SIGNAL"), Fault.VALUE),
        (pymysql.ProgrammingError(1146, "Table doesn't exist"), Fault.TABLE_MISSING),
        (pymysql.OperationalError(1054, "Unknown column"), Fault.ALTERED),
        (pymysql.OperationalError(1213, "Deadlock found"), Fault.DEADLOCK),
        (pymysql.OperationalError(1205, "Lock wait timeout"), Fault.LOCK_WAIT),
        (pymysql.OperationalError(1969, "max_statement_time"), Fault.TIME_LIMIT),
        (pymysql.OperationalError(1142, "SELECT command denied"), Fault.PERMISSION),
        (pymysql.OperationalError(1290, "--read-only"), Fault.PASSING),
        (pymysql.OperationalError(1053, "Server shutdown"), Fault.ENDED),
        (pymysql.OperationalError(2013, "Lost connection"), Fault.LOST),
        (pymysql.InterfaceError(0, ""), Fault.LOST),
        (pymysql.ProgrammingError("nan can not be used with MySQL"), Fault.OTHER),
        (pymysql.ProgrammingError(1064, "syntax"), Fault.OTHER),
    ],
)
def test_mysql(error: pymysql.Error, fault: Fault) -> None:
    assert mysql.fault_of(error) is fault
