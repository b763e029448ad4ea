"""A column's type at the sink, as a feed or an option chooses it: ``shop.orders.total`` and a type."""

from headgate.records.identifiers import parse_identifier, table_spelling

__all__ = ["column_of"]


def column_of(name: str) -> tuple[str, str]:
    """(table, column) of a column's name, the table in its one spelling. Raises ValueError."""
    *table, column = parse_identifier(name)
    match table:
        case [relation]:
            return table_spelling(None, relation), column
        case [schema, relation]:
            return table_spelling(schema, relation), column
    raise ValueError(f"{name!r} does not name a column of a table. Write it like shop.orders.total")
