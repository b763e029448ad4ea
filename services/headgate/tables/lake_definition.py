"""A sink's table as plans for altering it need it: a database's, or a lake's in the same form. Pure."""

from headgate.databases.catalogue import CatalogueColumn, Key, Product, TableDefinition, TableForm
from headgate.records.identifiers import normal_table, table_spelling
from headgate.sinks.altering import AlteringRules, PresentTable
from headgate.tables.statement import Definition

__all__ = ["LakeDefinition", "SinkDefinition", "lake_definition", "spelled"]


class LakeDefinition(TableDefinition[CatalogueColumn, Key], frozen=True, kw_only=True):
    """``table`` is the whole name. Types are those of LAKE_TYPES. ``present``: what the sink itself calls the same."""

    present: PresentTable
    rules: AlteringRules


SinkDefinition = Definition | LakeDefinition


def lake_definition(name: str, present: PresentTable, rules: AlteringRules) -> LakeDefinition:
    """The definition of a lake's table as it is."""
    columns = tuple(
        CatalogueColumn(
            number=number,
            name=column.name,
            type=column.type.sql,
            kind=column.type.name,
            is_nullable=column.is_nullable,
            default=None,
            generated=None,
            is_identity=False,
            collation=None,
        )
        for number, column in enumerate(present.columns, start=1)
    )
    key = Key(name="key", columns=present.key, is_primary=True, finds_rows=True)
    return LakeDefinition(
        product=Product.LAKE,
        schema="",
        table=normal_table(name),
        form=TableForm(columns, (key,) if present.key else ()),
        present=present,
        rules=rules,
    )


def spelled(sink: SinkDefinition) -> str:
    """The table's name for people."""
    return sink.table if isinstance(sink, LakeDefinition) else table_spelling(sink.schema, sink.table)
