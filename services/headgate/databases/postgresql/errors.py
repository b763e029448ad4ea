"""What PostgreSQL's errors mean."""

import re
from typing import Final

import psycopg

__all__ = ["message", "without_values"]

_ON_SCHEMA: Final = frozenset({"08", "0A", "25", "28", "3D", "3F", "40", "42", "53", "54", "55", "57", "58"})
"""Classes of SQLSTATE whose messages quote names, never values. An extension's own, and a trigger's, may quote any."""

_ON_VALUES: Final = "22"
_RAISED_BY_A_FUNCTION: Final = "pl_exec.c"
"""Where PL/pgSQL raises: a function's own text may quote a value anywhere, under any SQLSTATE."""

_BEFORE_THE_VALUE: Final = re.compile("[^:\"'(]*")
_SAID: Final = {
    "22001": "value too long",
    "22003": "value out of range",
    "23502": "null value in a column that is NOT NULL",
    "23505": "duplicate key value",
}
"""Refusals that the server words with the value in front."""

_WORD: Final = re.compile("([A-Z][a-z]+)")


def message(error: psycopg.Error) -> str:
    """What the server said."""
    return (error.diag.message_primary or str(error) or type(error).__name__).strip()


def without_values(error: psycopg.Error) -> str:
    """What the server said, if such a message names parts of the schema only; else the condition's name."""
    state = error.sqlstate
    if state is None or state[:2] in _ON_SCHEMA:
        return message(error)
    named = [
        f"{what} {name}"
        for what, name in (("constraint", error.diag.constraint_name), ("type", error.diag.datatype_name))
        if name
    ]
    return f"{', '.join([_condition(error, state), *named])} (SQLSTATE {state})"


def _condition(error: psycopg.Error, state: str) -> str:
    """What PostgreSQL itself says of a value before it quotes it; else the name of the condition."""
    if state[:2] == _ON_VALUES and error.diag.source_file != _RAISED_BY_A_FUNCTION:
        said = _BEFORE_THE_VALUE.match(error.diag.message_primary or "")
        if said is not None and " " in said[0].strip():
            return said[0].strip()
    return _SAID.get(state) or _WORD.sub(r" \1", type(error).__name__).strip().lower()
