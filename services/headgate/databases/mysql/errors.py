"""What MySQL's and MariaDB's errors mean."""

from typing import Final

from pymysql.constants import CR

__all__ = ["UNAVAILABLE", "errno", "is_clients", "message"]

UNAVAILABLE: Final = frozenset(
    {
        1020, 1021, 1028, 1030, 1037, 1038, 1040, 1041, 1042, 1043, 1047, 1053, 1077, 1078, 1079, 1080, 1105, 1114,
        1129, 1135, 1152, 1153, 1158, 1159, 1160, 1161, 1180, 1184, 1203, 1205, 1206, 1213, 1226, 1290, 1317, 1429,
        1614, 1637, 1792, 1836, 1874, 1927, 1969, 2002, 2003, 2005, 2006, 2013, 2055, 3024, 3058, 3101, 3572, 4031,
    }
)  # fmt: skip
"""Errors that pass: the server stops, starts, is full, is read-only for now, or a lock was not granted in time."""


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
