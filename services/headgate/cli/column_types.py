"""``--type TABLE.COLUMN=TYPE``: types that the user chooses for columns of the sink."""

from collections import defaultdict
from collections.abc import Iterable
from typing import Annotated, Final

import typer

from headgate.app.exit_codes import CommandError, ExitCode
from headgate.capture.tables import SourceTable
from headgate.capture.target_tables import ChosenTypes
from headgate.records.identifiers import NotAnIdentifierError, parse_identifier, show_identifier

__all__ = ["ColumnTypes", "chosen_types"]

ColumnTypes = Annotated[
    list[str] | None,
    typer.Option("--type", metavar="TABLE.COLUMN=TYPE", help="a column's type at the sink. May be repeated"),
]

_PARTS: Final = 3
"""Of a column's name: schema, table and column."""


def chosen_types(given: Iterable[str], tables: Iterable[SourceTable]) -> ChosenTypes:
    """What was given, by table. ``tables``: those that are created. Raises CommandError."""
    known = {(table.schema, table.table) for table in tables}
    found: defaultdict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for text in given:
        name, _, chosen = text.partition("=")
        try:
            parts = parse_identifier(name)
        except NotAnIdentifierError as error:
            raise CommandError(ExitCode.USAGE, f"--type {text!r}: {error}") from error
        if len(parts) != _PARTS or not chosen.strip():
            raise CommandError(
                ExitCode.USAGE,
                f"--type {text!r} does not name a table, a column and a type. "
                "Write it like shop.orders.total=decimal(12,2)",
            )
        schema, table, column = parts
        if (schema, table) not in known:
            raise CommandError(
                ExitCode.USAGE,
                f"--type {text!r}: {show_identifier((schema, table))} is not a table that the sink lacks, "
                "so nothing creates it",
            )
        found[schema, table][column] = chosen.strip()
    return found
