"""Where a migration is done: how its options are named in errors, and what errors of opening a session mean to it."""

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Final

from headgate.databases.address import AddressOptions, Target
from headgate.databases.errors import DatabaseRefusedError
from headgate.migration.strategies.contract import RefusedError

DATABASE: Final = AddressOptions("the migration's address", "its password_file", "database")
"""Of a database that a task of Spark's opens: the owner has resolved the connection."""


def target_of(database: str, password_file: str | None) -> Target:
    """The database of that address, with the password from that file."""
    return Target(database, None if password_file is None else Path(password_file), DATABASE)


_ID_CHARACTERS_MAX: Final = 200
"""What the column ``headgate.migration.id`` holds."""


NO_CLUSTER: Final = ""
"""For callers that only examine: they keep nothing at a database that another cluster's could be taken for."""


def id_in_database(cluster_id: str, migration: str) -> str:
    """What a migration is called at its database. Sessions, locks, copies and memory are named by it.

    Ids are unique within one Headgate cluster only, and several clusters may change tables of one server.
    """
    if cluster_id == NO_CLUSTER:
        return migration
    mark = mark_of(cluster_id)
    if len(migration) + len(mark) > _ID_CHARACTERS_MAX:
        return sha256(migration.encode()).hexdigest() + mark
    return migration + mark


def mark_of(cluster_id: str) -> str:
    """How all ids end that migrations of a cluster have at databases."""
    return f"@{sha256(cluster_id.encode()).hexdigest()[:16]}"


def password_refused(given_in: AddressOptions) -> RefusedError:
    """Why an address may not have a password."""
    return RefusedError(
        f"{given_in.address} has a password in it, and requests are stored in Kafka. {given_in.way_of_secrets}"
    )


@contextmanager
def refusing() -> Iterator[None]:
    """Raise what a database refuses as a RefusedError."""
    try:
        yield
    except DatabaseRefusedError as error:
        raise RefusedError(str(error)) from error
