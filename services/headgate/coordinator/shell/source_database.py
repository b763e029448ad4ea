"""Whether a feed's source database is the one that its changes come from."""

from collections.abc import Mapping

from headgate.config.feed import FeedSpec
from headgate.config.plugs import FORMATS
from headgate.databases.address import Target
from headgate.databases.kinds import kind_of
from headgate.eventlog.connection import KafkaConnection
from headgate.sinks.registry import plug_of
from headgate.sources.database import SourceDatabaseError, as_source_errors, source_target
from headgate.sources.origin import Origin, origins
from headgate.tables.catalogues import Catalogue, open_catalogue

__all__ = ["check_source_database", "why_another"]


def check_source_database(connection: KafkaConnection, spec: FeedSpec, topics: Mapping[str, int]) -> None:
    """Raise SourceDatabaseError where it cannot be read, or the newest events of a topic come from another one.

    ``topics``: topic → number of partitions. Events that do not name their database, and topics without recent events,
    prove nothing. Raises SourceUnreachableError.
    """
    if spec.source.database is None:
        return
    target = source_target(spec.source.database)
    found = origins(connection, topics) if FORMATS[spec.source.format].tells_origin else {}
    with as_source_errors(), open_catalogue(target) as catalogue:
        why = next(
            (why for topic in sorted(found) if (why := why_another(catalogue, target, topic, found[topic]))), None
        )
    if why is not None:
        raise SourceDatabaseError(f"{why}. Correct source.database")


def why_another(catalogue: Catalogue, target: Target, topic: str, origin: Origin) -> str | None:
    """Why events of that origin do not come from this database; None if they may."""
    kind = kind_of(target.dsn, target.options).name
    if origin.connector not in plug_of(kind).connectors:
        return f"the newest events of topic {topic} come from a {origin.connector}, but source.database is a {kind}"
    if kind == "postgresql" and origin.database != catalogue.database():
        return (
            f"the newest events of topic {topic} come from database {origin.database}, but source.database is "
            f"database {catalogue.database()}"
        )
    if kind == "mysql" and origin.database not in catalogue.sink().schemas:
        return (
            f"the newest events of topic {topic} come from database {origin.database}, which the server of "
            "source.database does not have, or its user cannot see"
        )
    return None
