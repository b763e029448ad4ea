"""The meaning of MySQL's and MariaDB's errors, and the parts of their text that may be shown."""

import re
from typing import Final

import pymysql
from pymysql import Error as MysqlError
from pymysql.constants import CR, ER

from headgate.databases.faults import Fault

__all__ = ["BAD_VALUES", "UNAVAILABLE", "MysqlError", "errno", "fault_of", "is_clients", "message", "without_values"]

UNAVAILABLE: Final = frozenset(
    {
        1020, 1021, 1028, 1030, 1037, 1038, 1040, 1041, 1042, 1043, 1047, 1053, 1077, 1078, 1079, 1080, 1105, 1114,
        1129, 1135, 1152, 1153, 1158, 1159, 1160, 1161, 1180, 1184, 1203, 1205, 1206, 1213, 1226, 1290, 1317, 1429,
        1614, 1637, 1792, 1836, 1874, 1927, 1969, 2002, 2003, 2005, 2006, 2013, 2055, 3024, 3058, 3101, 3572, 4031,
    }
)  # fmt: skip
"""Errors that pass: the server stops, starts, is full, is read-only for now, or a lock was not granted in time."""

BAD_VALUES: Final = frozenset(
    {1048, 1062, 1118, 1263, 1264, 1265, 1292, 1364, 1366, 1367, 1406, 1411, 1416, 1425, 1427, 1451, 1452, 1216, 1217,
     1526, 1586, 1644, 1690, 1761, 1762, 1901, 3140, 3156, 3819, 4025, 4078}
)  # fmt: skip
"""Errors and warnings that are caused by rows, not by the server."""

_FAULTS: Final = (
    (Fault.BETWEEN_ROWS, frozenset({1062, 1586, 1216, 1217, 1451, 1452, 1761, 1762})),
    (Fault.VALUE, BAD_VALUES),
    (Fault.TABLE_MISSING, frozenset({1146})),
    (Fault.ALTERED, frozenset({1054, 1109, 1136, 1412})),
    (Fault.DEADLOCK, frozenset({1213})),
    (Fault.LOCK_WAIT, frozenset({1205})),
    (Fault.TIME_LIMIT, frozenset({1969, 3024})),
    (Fault.PERMISSION, frozenset({1044, 1142, 1143, 1227, 1370, 1410, 1698})),
    (Fault.ENDED, frozenset({1028, 1040, 1053, 1129, 1317, 1927, 4031})),
    (Fault.LOST, frozenset({2002, 2003, 2005, 2006, 2013, 2014, 2055})),
    (Fault.PASSING, UNAVAILABLE),
)

_QUOTES_VALUES: Final = frozenset(
    {1062, 1292, 1366, 1367, 1411, 1525, 1526, 1586, 1644, 1690, 1761, 1762, 3140, 3156, 3903, 4078}
)
"""Errors and warnings whose text quotes a value of the row, or is a trigger's own (SIGNAL)."""

_SAID: Final = {1062: "duplicate entry", 1292: "incorrect value", 1366: "incorrect value", 1586: "duplicate entry"}
"""The commonest refusals as the server words them, less the value. Others are called by their error's name."""

_NAMES: Final = {number: name for name, number in vars(ER).items() if isinstance(number, int)}

_AT_END: Final = re.compile(r"for (?P<what>key|column) (?P<name>[^ ]+)(?= at row \d+$|$)")
"""The name behind the value, read from the text's end, which no value can reach."""


def fault_of(error: MysqlError) -> Fault:
    """Why the statement failed; the first that fits."""
    number = errno(error)
    if number == 0 and isinstance(error, pymysql.OperationalError | pymysql.InterfaceError | pymysql.InternalError):
        return Fault.LOST
    return next((fault for fault, numbers in _FAULTS if number in numbers), Fault.OTHER)


def errno(error: BaseException | None) -> int:
    """The server's (or client's) error number; 0 where there is none."""
    match error.args if error is not None else ():
        case (int(number), *_):
            return number
    return 0


def is_clients(number: int) -> bool:
    """Whether an error is the client's own, about a server that has not answered; servers number theirs otherwise."""
    return number == 0 or CR.CR_ERROR_FIRST <= number < CR.CR_ERROR_FIRST + 1_000


def message(error: BaseException) -> str:
    """The server's message."""
    return str(error.args[1]).strip() if len(error.args) > 1 else str(error) or type(error).__name__


def without_values(number: int, text: str) -> str:
    """The server's message, without the value that some messages quote: the error's name, key or column."""
    if number not in _QUOTES_VALUES:
        return text
    name = _SAID.get(number) or _NAMES.get(number, "value refused").replace("_", " ").lower()
    named = [f"{place['what']} {place['name']}" for place in _AT_END.finditer(text)]
    return f"{', '.join([name, *named])} (error {number})"
