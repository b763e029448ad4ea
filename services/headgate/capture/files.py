"""The files for tables of a source: one for a connector, one for a feed, and one that creates target tables."""

from pathlib import Path

import msgspec

from headgate.capture.connector import ConnectorNames, connector_json
from headgate.capture.feed_file import FeedEnds, feed_file
from headgate.capture.place import DatabaseEndpoint
from headgate.capture.source import Capture, Mysql
from headgate.config.feed import parse_feed
from headgate.tables.plan import TargetTables

__all__ = ["CaptureFile", "CaptureFiles", "Naming", "capture_files", "tables_file"]


class Naming(msgspec.Struct, frozen=True, kw_only=True):
    """What the user chose: the feed's name, which its topics begin with, and the connector's slot and publication.

    ``password_file`` is on the machines of Kafka Connect.
    """

    feed: str
    slot: str
    publication: str
    bootstrap: str
    password_file: Path | None


class CaptureFile(msgspec.Struct, frozen=True):
    """A file, what it is for, and its text."""

    name: str
    what: str
    text: str


class CaptureFiles(msgspec.Struct, frozen=True):
    """The files for Kafka Connect and for `headgate feed create`."""

    connector: CaptureFile
    feed: CaptureFile

    @property
    def all(self) -> list[CaptureFile]:
        """In the order in which they are used."""
        return [self.connector, self.feed]


def capture_files(captured: Capture, place: DatabaseEndpoint, naming: Naming, ends: FeedEnds) -> CaptureFiles:
    """The texts; nothing is written. Raises DatabaseRefusedError where two tables have one topic, FeedSpecError."""
    names = ConnectorNames(
        prefix=naming.feed,
        slot=naming.slot,
        publication=naming.publication,
        bootstrap=naming.bootstrap,
        password_file=naming.password_file,
        is_mariadb=isinstance(captured, Mysql) and captured.facts.is_mariadb,
    )
    feed = feed_file(naming.feed, naming.feed, captured.tables, ends)
    parse_feed(feed)
    connector = connector_json(place, names, captured.tables)
    return CaptureFiles(
        CaptureFile(f"{naming.feed}-connector.json", "Kafka Connect", connector),
        CaptureFile(f"{naming.feed}.yaml", f"headgate feed create, {_counted(len(captured.tables))}", feed),
    )


def tables_file(feed: str, tables: TargetTables) -> list[CaptureFile]:
    """The statements that create them, if there are any."""
    count = len(tables.created)
    what = f"reading, {_counted(count)} that Headgate creates at the sink"
    return [CaptureFile(f"{feed}-tables.sql", what, tables.text)] if count else []


def _counted(tables: int) -> str:
    return f"{tables} {'table' if tables == 1 else 'tables'}"
