"""The plan for tables of a source that are missing at a sink, before a feed exists."""

import msgspec

from headgate.capture.excluded_columns import excluded_columns
from headgate.capture.sink import missing_tables
from headgate.capture.source import Capture
from headgate.capture.tables import SourceTable
from headgate.config.columns import ColumnOptions
from headgate.databases.address import Target
from headgate.databases.kinds import kind_of
from headgate.tables.catalogues import Catalogue, open_catalogue
from headgate.tables.keyed import keyed_definition
from headgate.tables.missing import MissingTables
from headgate.tables.plan import ChosenTypes, target_tables
from headgate.tables.shaped import shaped_definition
from headgate.tables.statement import Definition, Refusal, RefusedTable

__all__ = ["read_target_tables"]

_UNSEEN = Refusal("the source's user may not see its definition. Grant SELECT on it")


def read_target_tables(
    source: Capture, to: Capture, source_target: Target, sink_target: Target, types: ChosenTypes
) -> MissingTables:
    """Read what the missing tables look like, and plan them. Writes nothing. Raises DatabaseError."""
    missing = missing_tables(source, to)
    if not missing:
        return MissingTables()
    with open_catalogue(source_target) as catalogue:
        kind = kind_of(sink_target.dsn, sink_target.options).name
        definitions = {table.name: _definition(catalogue, table, kind) for table in missing}
    unseen = tuple(RefusedTable(name=name, refusals=(_UNSEEN,)) for name, found in definitions.items() if not found)
    with open_catalogue(sink_target) as catalogue:
        sink = catalogue.sink()
        tables = target_tables((each for each in definitions.values() if each is not None), sink, types)
        grants = tuple(catalogue.lacking(tables.created, sink))
    return MissingTables(
        lacking=frozenset(table.name for table in missing),
        tables=msgspec.structs.replace(tables, refused=(*unseen, *tables.refused)),
        sink=sink,
        grants=grants,
    )


def _definition(catalogue: Catalogue, table: SourceTable, sink: str) -> Definition | None:
    """With the key and the columns that the feed names, as its creation has it."""
    found = catalogue.definition(table.name)
    if found is None:
        return None
    columns = ColumnOptions(exclude=tuple(excluded_columns(table, sink)) or None)
    return shaped_definition(keyed_definition(found, table.row_key or None), columns)
