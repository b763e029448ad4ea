"""The schema ``headgate`` in a database: which clusters use it, and how it is removed once only one of them does.

Only tables that Headgate makes are dropped. A schema that holds anything else stays, so nothing of a user is lost.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol

import msgspec

__all__ = ["LOCK_SECONDS", "OWN_TABLES", "Contents", "OwnSchema", "SchemaInUseError", "contents_now", "refuse_others"]

LOCK_SECONDS: Final = 10
"""For sessions of services that are about to end. A lock that is held for longer is reported."""

_OF_CLUSTERS: Final = ("progress", "removed", "source_tables", "row_copies", "known_columns")
"""Tables of the fence with a column ``cluster_id`` (databases/progress.py)."""

_OF_MIGRATIONS: Final = ("migration", "migration_owner")
"""Tables of schema changes. Their ids end with a digest of the cluster (migration/strategies/target.py)."""

OWN_TABLES: Final = (*_OF_CLUSTERS, *_OF_MIGRATIONS, "tables")
"""All that Headgate makes in its schema; the last one at MySQL and MariaDB only."""


class SchemaInUseError(Exception):
    """The schema holds something besides what this cluster has made there, and stays."""


class Contents(msgspec.Struct, frozen=True):
    """What the schema holds: ``tables`` of Headgate, other clusters that use them, migrations of others, and the rest.

    ``exists``: an empty schema may have been made by an administrator, for Headgate.
    """

    exists: bool
    tables: tuple[str, ...] = ()
    clusters: tuple[str, ...] = ()
    migrations: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()

    @property
    def why_kept(self) -> str:
        """Why the schema cannot be removed, empty if it can."""
        reasons = {
            "cluster": self.clusters,
            "schema change of another cluster:": self.migrations,
            "table or view that Headgate did not make:": self.foreign,
        }
        used = [f"{what} {name}" for what, names in reasons.items() for name in names]
        return f"it is used by {', '.join(used)}" if used else ""


class OwnSchema(Protocol):
    """The schema, over one session. Methods raise DatabaseError."""

    def read(self) -> Contents:
        """What it holds now."""
        ...

    def drop(self) -> None:
        """Drop it with its tables, unless another cluster uses it by then. Raises SchemaInUseError."""
        ...


class Rows(Protocol):
    """Runs a statement and returns its rows."""

    def __call__(self, statement: str, parameters: Any = None) -> list[tuple[Any, ...]]:
        """See the class."""
        ...


def read_contents(execute: Rows, names: Sequence[str], cluster_id: str, mark: str) -> Contents:
    """What a schema with these tables and views holds. ``mark``: how ids of the cluster's migrations end."""
    tables = tuple(name for name in OWN_TABLES if name in names)
    return Contents(
        exists=True,
        tables=tables,
        clusters=_other_clusters(execute, tables, cluster_id),
        migrations=_other_migrations(execute, tables, mark),
        foreign=tuple(sorted(set(names) - set(tables))),
    )


def contents_now(execute: Rows, exists: str, relations: str, cluster_id: str, mark: str) -> Contents:
    """What the schema holds. ``exists`` asks for the schema, ``relations`` for the names of its tables and views."""
    if not execute(exists):
        return Contents(exists=False)
    return read_contents(execute, [str(name) for (name,) in execute(relations)], cluster_id, mark)


def refuse_others(contents: Contents) -> None:
    """Raise SchemaInUseError if more uses the schema than this cluster."""
    if contents.why_kept:
        raise SchemaInUseError(contents.why_kept)


def _other_clusters(execute: Rows, tables: Sequence[str], cluster_id: str) -> tuple[str, ...]:
    """Each by its own id, which contains that of its Kafka cluster."""
    others: set[str] = set()
    for table in (name for name in _OF_CLUSTERS if name in tables):
        mine: Mapping[str, object] = {"cluster": cluster_id}
        found = execute(f"SELECT DISTINCT cluster_id FROM headgate.{table} WHERE cluster_id <> %(cluster)s", mine)
        others |= {str(cluster) for (cluster,) in found}
    return tuple(sorted(others))


def _other_migrations(execute: Rows, tables: Sequence[str], mark: str) -> tuple[str, ...]:
    found: set[str] = set()
    for table in (name for name in _OF_MIGRATIONS if name in tables):
        found |= {str(name) for (name,) in execute(f"SELECT id FROM headgate.{table}")}
    return tuple(sorted(name for name in found if not name.endswith(mark)))
