"""What is planned for the tables of a source that a sink lacks, before there is a feed."""

from headgate.capture.sink import missing_tables
from headgate.capture.source import Capture
from headgate.databases.address import Target
from headgate.tables.catalogues import open_catalogue
from headgate.tables.plan import ChosenTypes, TargetTables, target_tables

__all__ = ["read_target_tables"]


def read_target_tables(
    source: Capture, to: Capture, source_target: Target, sink_target: Target, types: ChosenTypes
) -> TargetTables:
    """Read what the missing tables look like, and plan them. Writes nothing. Raises DatabaseError."""
    missing = missing_tables(source, to)
    if not missing:
        return TargetTables()
    with open_catalogue(source_target) as catalogue:
        definitions = [catalogue.definition(table.name) for table in missing]
    with open_catalogue(sink_target) as catalogue:
        sink = catalogue.sink()
    return target_tables((each for each in definitions if each is not None), sink, types)
