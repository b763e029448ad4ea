"""Conditions that a Delta table sets for its rows: CHECK constraints, and invariants of columns.

delta-rs refuses a commit with a row that does not meet one, and reports neither the condition nor the event. So rows
are tried first in a table that has nothing but the condition, in a temporary folder: the same code evaluates it there.
"""

import json
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

import pyarrow as pa
from deltalake import DeltaTable, Schema, write_deltalake
from deltalake.exceptions import DeltaError
from deltalake.schema import Field

from headgate.sinks.contract import SinkRefusedError

__all__ = ["VIOLATED", "DeltaRule", "rules_of"]

VIOLATED: Final = re.compile(r"Invalid data found|violates? (check )?constraint|failed validation check")
"""How delta-rs begins its report of rows that do not meet a condition. The rows follow."""

_CHECK: Final = "delta.constraints."
_INVARIANTS: Final = "delta.invariants"


class DeltaRule:
    """See Rule of sinks/lake/tables.py."""

    def __init__(self, text: str, advice: str, expression: str, fields: Sequence[Field]) -> None:
        """``expression``: the condition, in SQL. ``fields``: the table's columns."""
        self.text: Final = text
        self.advice: Final = advice
        self._expression = expression
        self._fields = fields

    def may_use(self, column: str) -> bool:
        """See Rule. A name that only looks like the column's counts as well."""
        return column.casefold() in self._expression.casefold()

    def is_met(self, rows: pa.Table) -> bool:
        """See Rule."""
        try:
            with tempfile.TemporaryDirectory(prefix="headgate-rule-") as folder:
                write_deltalake(self._trial(Path(folder)), rows, mode="append")
        except DeltaError as error:
            if VIOLATED.search(str(error)):
                return False
            raise SinkRefusedError(
                f"delta-rs cannot evaluate {self.text}: {_reason(error)}. {self.advice}, or write it with functions "
                "and names of columns that delta-rs knows"
            ) from None
        return True

    def check(self) -> None:
        """Raise SinkRefusedError if the condition cannot be evaluated."""
        self.is_met(pa.Table.from_pylist([{}], pa.schema(Schema(self._bare()).to_arrow())))

    def _trial(self, folder: Path) -> DeltaTable:
        first, *others = self._bare()
        condition = {_INVARIANTS: json.dumps({"expression": {"expression": self._expression}})}
        first = Field(first.name, first.type, nullable=True, metadata=condition)
        return DeltaTable.create(folder, Schema([first, *others]))

    def _bare(self) -> list[Field]:
        return [Field(field.name, field.type, nullable=True) for field in self._fields]


def _reason(error: DeltaError) -> str:
    """The first line, without the names of the layers that it came through."""
    return str(error).partition("\n")[0].rpartition("error: ")[2].rstrip(". ")


def rules_of(fields: Sequence[Field], properties: Mapping[str, str]) -> Iterator[DeltaRule]:
    """All conditions of a table."""
    for name, expression in sorted(properties.items()):
        if name.startswith(_CHECK):
            constraint = name.removeprefix(_CHECK)
            text = f"constraint {constraint} ({expression})"
            advice = f"Drop it (Spark: ALTER TABLE … DROP CONSTRAINT {constraint})"
            yield DeltaRule(text, advice, expression, fields)
    for field in fields:
        invariant = _invariant(field)
        if invariant is not None:
            text = f"the invariant of column {field.name} ({invariant})"
            advice = "Create the table without it, and let Headgate copy its rows"
            yield DeltaRule(text, advice, invariant, fields)


def _invariant(field: Field) -> str | None:
    """The condition in a column's metadata; one of another form is one that delta-rs does not evaluate either."""
    try:
        found = json.loads(str((field.metadata or {}).get(_INVARIANTS, "null")))
    except ValueError:
        return None
    match found:
        case {"expression": {"expression": str(expression)}}:
            return expression
    return None
