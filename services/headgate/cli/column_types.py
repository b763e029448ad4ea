"""``--type TABLE.COLUMN=TYPE``: types that the user chooses for columns of the sink."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Annotated, Final

import typer

from headgate.app.exit_codes import CommandError, ExitCode
from headgate.capture.tables import SourceTable
from headgate.config.column_types import column_of
from headgate.records.identifiers import table_spelling
from headgate.tables.plan import ChosenTypes

__all__ = ["ColumnTypes", "chosen_types"]

ColumnTypes = Annotated[
    list[str] | None,
    typer.Option("--type", metavar="TABLE.COLUMN=TYPE", help="a column's type at the sink. May be repeated"),
]

_NOT_MISSING: Final = "is not missing at the sink, so it is not created"


def chosen_types(given: Iterable[str], tables: Iterable[SourceTable], *, otherwise: str = _NOT_MISSING) -> ChosenTypes:
    """What was given, by table. ``otherwise``: what a table is that is none of ``tables``. Raises CommandError."""
    known = {table_spelling(table.schema, table.table): (table.schema, table.table) for table in tables}
    found: defaultdict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for text in given:
        name, _, chosen = text.partition("=")
        try:
            table, column = column_of(name)
        except ValueError as error:
            raise CommandError(ExitCode.USAGE, f"--type {text!r}: {error}") from error
        if not chosen.strip():
            raise CommandError(
                ExitCode.USAGE, f"--type {text!r} has no type. Write it like shop.orders.total=decimal(12,2)"
            )
        if table not in known:
            raise CommandError(ExitCode.USAGE, f"--type {text!r}: {table} {otherwise}")
        found[known[table]][column] = chosen.strip()
    return found
