"""The source database of a feed (``source.database``), and its normalized address."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from headgate.config.feed import FeedSpec
from headgate.config.source_spec import SourceDatabase
from headgate.databases.address import AddressOptions, Target
from headgate.databases.connections import Use, named
from headgate.databases.errors import DatabaseError, DatabaseRefusedError
from headgate.databases.kinds import kind_of
from headgate.sources.offsets import SourceError

__all__ = ["SnapshotRefusedError", "SourceDatabaseError", "as_source_errors", "same_source", "source_target"]

OPTIONS: Final = AddressOptions("source.database.dsn", "source.database.password_file", "source database")


class SourceDatabaseError(SourceError):
    """The source database cannot be read, or is not the one that the changes come from."""

    code = "source_database"


class SnapshotRefusedError(SourceError):
    """The rows of some tables cannot be copied from the source database."""

    code = "snapshot_refused"


@contextmanager
def as_source_errors() -> Iterator[None]:
    """Raise a DatabaseError as a SourceDatabaseError."""
    try:
        yield
    except DatabaseError as error:
        raise SourceDatabaseError(str(error)) from error


def source_target(given: SourceDatabase) -> Target:
    """The database, given by its address or its named connection. Raises SourceDatabaseError."""
    if given.connection is None:
        return Target(given.dsn or "", given.password_file, OPTIONS)
    with as_source_errors():
        return named(given.connection, Use.SOURCE, "source.database.connection")[1]


def same_source(spec: FeedSpec) -> FeedSpec:
    """The feed with the one spelling of its source database's address. A named connection stays a name.

    Raises SourceDatabaseError for an address that is not valid, whose kind of database is not known, or that has a
    password in it: feeds are stored on a topic that others can read.
    """
    given = spec.source.database
    if given is None or given.dsn is None:
        return spec
    with as_source_errors():
        address = kind_of(given.dsn, OPTIONS).address(given.dsn, OPTIONS)
        if address.has_password:
            raise DatabaseRefusedError(
                f"{OPTIONS.address} has a password in it, and feeds are stored on a topic where others can read it. "
                f"{OPTIONS.way_of_secrets}"
            )
    database = given.model_copy(update={"dsn": address.text})
    return spec.model_copy(update={"source": spec.source.model_copy(update={"database": database})})
