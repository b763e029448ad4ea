"""Distinguishes a statement that the server refuses from a session that is lost."""

from typing import Final

import psycopg
import pymysql

__all__ = ["refusal"]

_CLIENT_ERRORS: Final = range(2_000, 3_000)
"""MariaDB's numbers of errors that the client itself finds, such as a lost connection."""


def refusal(error: psycopg.Error | pymysql.Error) -> str:
    """The server's answer to a statement. Raises the error itself if it is not the server's answer."""
    is_answer = error.sqlstate is not None if isinstance(error, psycopg.Error) else _is_answer(error)
    if not is_answer:
        raise error
    return str(error)


def _is_answer(error: pymysql.Error) -> bool:
    number = error.args[0] if error.args else None
    return isinstance(number, int) and number > 0 and number not in _CLIENT_ERRORS
