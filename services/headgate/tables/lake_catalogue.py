"""A lake's tables, in the form in which a database's catalogue shows its own."""

from headgate.databases.catalogue import Product
from headgate.records.identifiers import normal_table
from headgate.sinks.altering import AltersTables
from headgate.tables.lake_definition import LakeDefinition, lake_definition
from headgate.tables.plan import Sink

__all__ = ["LakeCatalogue"]


class LakeCatalogue:
    """What is asked of it raises SinkError."""

    def __init__(self, sink: AltersTables) -> None:
        self._sink = sink

    def place(self, name: str) -> tuple[str, str]:
        """The whole name is the table's, which may have any number of parts."""
        return "", normal_table(name)

    def definition(self, name: str) -> LakeDefinition | None:
        """The table of that name; None if it does not exist."""
        found = self._sink.present_table(name)
        return None if found is None else lake_definition(name, found, self._sink.altering_rules(name))

    def sink(self) -> Sink:
        """What plans depend on."""
        return Sink(Product.LAKE)

    def has_rows(self, name: str) -> bool:
        """Whether the table, which exists, has a row."""
        return self._sink.rows().has_rows(name)

    def shown(self, name: str) -> str:
        """See Catalogue. A lake prints no statements."""
        del name
        return ""
