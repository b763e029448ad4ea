"""Delta tables by delta-rs, the only module that imports it.

A commit is made on exactly the version that was read: it is tried once, and a file that exists is never replaced. What
delta-rs would do by itself (retry on a newer version, or skip a commit that changes no row) is turned off or noticed.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from headgate.sinks.contract import SinkError, SinkRefusedError, SinkUnavailableError

__all__ = ["ConflictError", "Merge", "Stamp", "Table", "as_sink_errors", "create", "quoted", "read"]

ERROR_LENGTH_MAX: Final = 500
"""An error of the library may contain a plan of a query."""

_NO_RIGHT: Final = ("Permission denied", "Read-only file system", "os error 13", "os error 30")
HISTORY_GROWS: Final = 16
"""The last commit is mostly Headgate's own, so one entry is read first, and then so many times more."""

_RESTORE: Final = "RESTORE"
_EXISTS: Final = "already exists"


class ConflictError(Exception):
    """The table is not at the version that was read any more. Nothing was committed."""


class Stamp(msgspec.Struct, frozen=True):
    """What a commit has besides rows: versions of application transactions, and texts for people."""

    transactions: Mapping[str, int] = {}
    about: Mapping[str, str] = {}


class Merge(msgspec.Struct, frozen=True):
    """How rows, named ``s``, change a table, named ``t``.

    ``on``, ``deletes``: conditions for which target row is meant, and whether it goes. ``values`` and ``updates``:
    column, quoted → expression, of rows that are new and that exist.
    """

    on: str
    deletes: str
    values: Mapping[str, str]
    updates: Mapping[str, str]


class Table:
    """One version of a table. Each commit is made on it, and then it is used no more."""

    def __init__(self, handle: DeltaTable) -> None:
        self._handle = handle
        self.version: Final = handle.version()

    @property
    def id(self) -> str:
        """The id that the table got when it was created."""
        return str(self._handle.metadata().id)

    @property
    def schema(self) -> pa.Schema:
        """Its columns."""
        return pa.schema(self._handle.schema().to_arrow())

    @property
    def properties(self) -> dict[str, str]:
        """Its table properties."""
        return self._handle.metadata().configuration

    @property
    def types(self) -> dict[str, str]:
        """Column → type, in Delta's words."""
        return {field.name: _type_name(field.type) for field in self._handle.schema().fields}

    def transaction(self, app_id: str) -> int | None:
        """The latest version of the application's own transaction."""
        return self._handle.transaction_version(app_id)

    def is_set_back_behind(self, written: str) -> bool:
        """Whether the table was restored to a version before its last commit whose entry has ``written``.

        Application transactions stay as they are then. Raises SinkError.
        """
        restored: dict[int, int | None] = {}
        count = 1
        while True:
            entries = self._handle.history(count)
            for entry in entries:
                if written in entry:
                    return not _leads_to(int(entry["version"]), self.version, restored)
                if entry.get("operation") == _RESTORE:
                    restored[int(entry["version"])] = _restored_version(entry)
            if len(entries) < count:
                return bool(restored)
            count *= HISTORY_GROWS

    def keys(self, columns: Sequence[str]) -> pa.Table:
        """These columns of all rows."""
        return pa.table(self._handle.scan(columns=list(columns)))

    def mark(self, stamp: Stamp) -> None:
        """Commit without rows. Raises ConflictError, SinkError."""
        with _committing():
            self._handle.create_write_transaction(
                [], "append", self._handle.schema(), commit_properties=_properties(stamp)
            )

    def append(self, rows: pa.Table, stamp: Stamp) -> None:
        """Add rows. Raises ConflictError, SinkError."""
        with _committing():
            write_deltalake(self._handle, rows, mode="append", commit_properties=_properties(stamp))

    def merge(self, rows: pa.Table, how: Merge, stamp: Stamp) -> None:
        """Delete, update and insert. Raises ConflictError, SinkError."""
        with _committing():
            merger = self._handle.merge(
                rows, how.on, source_alias="s", target_alias="t", commit_properties=_properties(stamp)
            )
            merger = merger.when_matched_delete(how.deletes).when_matched_update(dict(how.updates))
            merger.when_not_matched_insert(dict(how.values), f"NOT ({how.deletes})").execute()
        if self._handle.version() == self.version:  # no row was changed, so the library has committed nothing
            self.mark(stamp)

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """Change table properties. Raises ConflictError, SinkError."""
        with _committing():
            self._handle.alter.set_table_properties(
                dict(properties), raise_if_not_exists=False, commit_properties=_properties(Stamp())
            )


def _restored_version(entry: Mapping[str, Any]) -> int | None:
    """The version that a restore went back to; None if it named a time."""
    version = entry.get("operationParameters", {}).get("version")
    return None if version is None else int(version)


def _leads_to(version: int, newest: int, restored: Mapping[int, int | None]) -> bool:
    """Whether the rows of the newest version follow from ``version``, through all restores since."""
    at: int | None = newest
    while at is not None and at > version:
        at = restored[at] if at in restored else at - 1
    return at == version


def read(folder: Path) -> Table | None:
    """The table at its newest version; None if it does not exist. Raises SinkError."""
    if not (folder / "_delta_log").is_dir():
        return None
    with as_sink_errors(f"reading {folder}"):
        try:
            return Table(DeltaTable(folder))
        except TableNotFoundError:
            return None


def create(folder: Path, schema: pa.Schema, properties: Mapping[str, str]) -> None:
    """Create the table. Raises ConflictError if it exists, SinkError."""
    with as_sink_errors(f"creating {folder}"):
        try:
            folder.mkdir(parents=True, exist_ok=True)
            DeltaTable.create(
                folder,
                schema,
                mode="error",
                configuration=dict(properties),
                raise_if_key_not_exists=False,
                commit_properties=_properties(Stamp()),
            )
        except CommitFailedError as error:
            raise ConflictError from error
        except DeltaError as error:
            if _EXISTS in str(error):
                raise ConflictError from error
            raise


def quoted(name: str) -> str:
    """A column's name in an expression."""
    return '"' + name.replace('"', '""') + '"'


@contextmanager
def as_sink_errors(doing: str) -> Iterator[None]:
    """Raise errors of the library, and of files, as the SinkError that means the same."""
    try:
        yield
    except (DeltaError, OSError) as error:
        raise _sink_error(error, doing) from error


@contextmanager
def _committing() -> Iterator[None]:
    try:
        yield
    except CommitFailedError as error:
        raise ConflictError from error


def _sink_error(error: Exception, doing: str) -> SinkError:
    text = f"{doing}: {str(error)[:ERROR_LENGTH_MAX]}"
    if isinstance(error, PermissionError) or any(words in str(error) for words in _NO_RIGHT):
        return SinkRefusedError(f"{text}. Give user {os.geteuid()} of this process the right to write there")
    return SinkUnavailableError(text)


def _properties(stamp: Stamp) -> CommitProperties:
    return CommitProperties(
        custom_metadata=dict(stamp.about),
        max_commit_retries=0,
        app_transactions=[Transaction(app_id, version) for app_id, version in sorted(stamp.transactions.items())],
    )


def _type_name(type_: object) -> str:
    name = getattr(type_, "type", None)
    return str(name) if isinstance(name, str) else str(type_)
