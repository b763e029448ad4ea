"""What MySQL's and MariaDB's errors mean."""

import re
from typing import Final

from pymysql.constants import CR, ER

__all__ = ["UNAVAILABLE", "errno", "is_clients", "message", "without_values"]

UNAVAILABLE: Final = frozenset(
    {
        1020, 1021, 1028, 1030, 1037, 1038, 1040, 1041, 1042, 1043, 1047, 1053, 1077, 1078, 1079, 1080, 1105, 1114,
        1129, 1135, 1152, 1153, 1158, 1159, 1160, 1161, 1180, 1184, 1203, 1205, 1206, 1213, 1226, 1290, 1317, 1429,
        1614, 1637, 1792, 1836, 1874, 1927, 1969, 2002, 2003, 2005, 2006, 2013, 2055, 3024, 3058, 3101, 3572, 4031,
    }
)  # fmt: skip
"""Errors that pass: the server stops, starts, is full, is read-only for now, or a lock was not granted in time."""

_QUOTES_VALUES: Final = frozenset(
    {1062, 1292, 1366, 1367, 1411, 1525, 1526, 1586, 1644, 1690, 1761, 1762, 3140, 3156, 3903, 4078}
)
"""Errors and warnings whose text quotes a value of the row, or is a trigger's own (SIGNAL)."""

_SAID: Final = {1062: "duplicate entry", 1292: "incorrect value", 1366: "incorrect value", 1586: "duplicate entry"}
"""The commonest refusals as the server words them, less the value. Others are called by their error's name."""

_NAMES: Final = {number: name for name, number in vars(ER).items() if isinstance(number, int)}

_AT_END: Final = re.compile(r"for (?P<what>key|column) (?P<name>[^ ]+)(?= at row \d+$|$)")
"""The name behind the value, read from the text's end, which no value can reach."""


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
    """What the server said."""
    return str(error.args[1]).strip() if len(error.args) > 1 else str(error) or type(error).__name__


def without_values(number: int, text: str) -> str:
    """What the server said, without the value that some messages quote: the error's name, key or column."""
    if number not in _QUOTES_VALUES:
        return text
    name = _SAID.get(number) or _NAMES.get(number, "value refused").replace("_", " ").lower()
    named = [f"{place['what']} {place['name']}" for place in _AT_END.finditer(text)]
    return f"{', '.join([name, *named])} (error {number})"
