"""Delta tables by delta-rs.

A commit is made on exactly the version that was read: it is tried once, and a file that exists is never replaced. What
delta-rs would do by itself (retry on a newer version, or skip a commit that changes no row) is turned off or noticed.
"""

import json
import math
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.schema import Field
from pyarrow.dataset import Dataset

from headgate.config.partitioning import IDENTITY, PartitionField
from headgate.sinks.contract import SinkRefusedError
from headgate.sinks.delta.constraints import DeltaRule, rules_of
from headgate.sinks.delta.refusals import is_refusal, refused, violated
from headgate.sinks.delta.statistics import check_number, listed_columns, parquet_options
from headgate.sinks.delta.timestamps import READ_EXACTLY, RightFiles
from headgate.sinks.lake.binding import LEDGER
from headgate.sinks.lake.files import Files, LostFileError
from headgate.sinks.lake.history import COPY, OWN_ENTRIES
from headgate.sinks.lake.partitioning import PartitionRules
from headgate.sinks.lake.shape import KEY
from headgate.sinks.lake.staged_rows import GONE, absent_column, column
from headgate.sinks.lake.tables import (
    POSITIONS,
    Altered,
    ConflictError,
    Expired,
    Stamp,
    TableSize,
    Upserts,
    ValueBounds,
    Version,
)

__all__ = ["OWN_NAMES", "PARTITION_RULES", "DeltaLakeTable", "as_sink_errors", "create", "read"]

_LOST: Final = re.compile(r"Object at location (?P<file>.+?) not found")
_RESTORE: Final = "RESTORE"
_EXISTS: Final = "already exists"
PARTITION_RULES: Final = PartitionRules(
    "Delta",
    {IDENTITY: frozenset({"boolean", "tinyint", "smallint", "int", "bigint", "date", "timestamp_ntz", "string"})},
    keeps_empty=False,
    needs_others=True,
)
"""Values of partitions are texts in the log. delta-rs writes those of binary and of decimals as other values, readers
take those of timestamps for times of their own zone, and an empty text is NULL."""

OWN_NAMES: Final = "__delta_rs_"
"""How the names of columns begin that delta-rs adds to rows while it merges them."""

_MERGED: Final = frozenset(
    OWN_NAMES + name
    for name in (
        *("delete", "operation", "source", "target", "target_copy", "target_delete", "target_insert"),
        *("target_row_ordinal_in_file", "target_update"),
    )
)
"""Those of them with which a merge fails (delta-rs 1.6)."""

_FILE_ID: Final = f"{OWN_NAMES}file_id__"
"""The one with which every read of rows by delta-rs fails, and so does writing files together."""

_CHANGE_TYPE: Final = "_change_type"
_CHANGE_DATA: Final = "delta.enableChangeDataFeed"
"""Tables with this property get files of changes as well, which have that column."""

_CASE: Final = f"{OWN_NAMES}c_"
"""Before the name of each column, a column that a merge adds for it."""

_SQL: Final = {"integer": "int"}
"""Delta's words for types that Spark's SQL has others for."""

_COMPRESSION: Final = "SNAPPY"
_COMPACTED: Final = "ZSTD"
_COMPACTED_LEVEL: Final = 4
"""delta-rs's own choices for files that it writes, and for those that it writes together."""

_RETENTION: Final = "delta.setTransactionRetentionDuration"

_RIGHT_FILES: Final = RightFiles()


class DeltaLakeTable:
    """One version of a table. Each commit is made on it, and then it is used no more."""

    def __init__(self, handle: DeltaTable, files: Files, path: Path) -> None:
        """``path``: the table's folder, where ``files`` are."""
        self._handle = handle
        self._files = files
        self._path = path
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

    @property
    def key(self) -> tuple[str, ...]:
        """Its key, as a property has it: Delta has no primary keys."""
        try:
            return tuple(map(str, json.loads(self.properties.get(KEY, "[]"))))
        except ValueError:
            return ()

    @property
    def partitions(self) -> tuple[PartitionField, ...]:
        """See VersionedTable of sinks/lake/tables.py."""
        return tuple(map(PartitionField, self._handle.metadata().partition_columns))

    @property
    def folders(self) -> dict[str, str]:
        """See VersionedTable of sinks/lake/tables.py."""
        return {field.column: field.column for field in self.partitions}

    def is_name_of_field(self, name: str, former: str | None = None) -> bool:  # noqa: ARG002
        """See VersionedTable of sinks/lake/tables.py. Its fields are its columns."""
        return False

    @property
    def partition_rules(self) -> PartitionRules:
        """See VersionedTable of sinks/lake/tables.py."""
        return PARTITION_RULES

    @property
    def ledger(self) -> str | None:
        """See VersionedTable of sinks/lake/tables.py."""
        return self.properties.get(LEDGER)

    def renaming(self, former: str, name: str) -> str:
        """See VersionedTable of sinks/lake/tables.py."""
        type_ = self.types[former]
        return (
            f"A Delta table that Headgate writes cannot rename columns. Create the table again, or add the column "
            f"(Spark: ALTER TABLE … ADD COLUMN {name} {_SQL.get(type_, type_)}); older rows keep their values in "
            f"{former}"
        )

    def check(self, name: str, *, appends: bool) -> None:
        """See VersionedTable of sinks/lake/tables.py."""
        taken = _taken(self.types, self.properties, appends=appends)
        if taken is not None:
            column, doing = taken
            raise SinkRefusedError(
                f"table {name} has a column {column}, and delta-rs adds one of that name to rows while it {doing}. "
                "Create the table with another name for it, and give the source's column that name with columns.rename"
            )
        if _RETENTION in self.properties:
            raise SinkRefusedError(
                f"table {name} has the property {_RETENTION}, which removes positions from its log after a time. "
                "Unset it"
            )
        check_number(self.properties, f"table {name}")

    @property
    def rules(self) -> tuple[DeltaRule, ...]:
        """See VersionedTable of sinks/lake/tables.py."""
        return tuple(rules_of(self._handle.schema().fields, self.properties))

    def transaction(self, app_id: str) -> int | None:
        """The latest version of the application's own transaction."""
        return self._handle.transaction_version(app_id)

    def is_set_back_behind(self, written: str) -> bool:
        """Whether the table was restored to a version before its last commit whose entry has ``written``.

        Application transactions stay as they are then. Raises SinkError.
        """
        restored: dict[int, int | None] = {}
        for version in range(self.version, -1, -1):
            entry = self._entry(version)
            if entry is None:
                break
            if written in entry:
                return not _leads_to(version, self.version, restored)
            if entry.get("operation") == _RESTORE:
                restored[version] = _restored_version(entry)
        return bool(restored)

    def _entry(self, version: int) -> dict[str, Any] | None:
        """What the log shows about a commit; None if its file is gone. The last one is mostly Headgate's own.

        ``DeltaTable.history`` has the same, but no other thread runs while it waits for files: in an object store that
        does not answer, the agent's leases would run out.
        """
        found = self._files.read(self._path / "_delta_log" / f"{version:020}.json")
        if found is None:
            return None
        actions = map(json.loads, found.splitlines())
        return next((dict(action["commitInfo"]) for action in actions if "commitInfo" in action), {})

    def versions(self) -> list[Version]:
        """See VersionedTable of sinks/lake/tables.py."""
        return [
            Version(str(entry["version"]), int(entry["timestamp"]), _own_entries(entry))
            for entry in reversed(self._handle.history())
        ]

    def keys(self, columns: Sequence[str]) -> pa.Table:
        """These columns of all rows."""
        self._check_timestamps(columns)
        with _reading_rows():
            return pa.table(self._handle.scan(columns=list(columns)))

    def scan(self, columns: Sequence[str], bounds: ValueBounds | None) -> Iterator[pa.RecordBatch]:
        """See VersionedTable of sinks/lake/tables.py."""
        self._check_timestamps(columns)
        with _reading_rows():
            reader = self._handle.scan(columns=list(columns), predicate=None if bounds is None else _predicate(bounds))
            yield from pa.RecordBatchReader.from_stream(reader)

    def _check_timestamps(self, columns: Collection[str] | None = None) -> None:
        """Before delta-rs reads rows, with these columns. Raises SinkRefusedError, OSError."""
        with _reading_rows():
            where, options = self._files.where(self._path), self._files.delta_options(is_small=False)
            _RIGHT_FILES.check(self._handle, where, options, columns)

    def mark(self, stamp: Stamp) -> None:
        """Commit without rows. Raises ConflictError, SinkError."""
        with _committing():
            self._handle.create_write_transaction(
                [], "append", self._handle.schema(), commit_properties=_properties(stamp)
            )

    def bind(self, ledger: str, stamp: Stamp) -> None:
        """See VersionedTable. As for a ledger, whose properties are written by the same call."""
        _set_properties(self._opened(self.version, is_small=True), {LEDGER: ledger}, stamp)

    def _opened(self, version: int, *, is_small: bool) -> DeltaTable:
        with as_sink_errors(self._files, f"reading {self._files.where(self._path)}"):
            options = self._files.delta_options(is_small=is_small)
            return DeltaTable(self._files.where(self._path), version=version, storage_options=options)

    def _list_statistics(self, fields: Sequence[Field], stamp: Stamp) -> None:
        """Have files that are written from now on only get statistics that are right. ``fields``: the table's columns.

        That is a commit of its own, on the version that was read. So the next one, which is made on that commit, is
        still refused if any other has come in between. It shows who made it, but not the positions: it has no rows.
        """
        listed = listed_columns(fields, self._handle.metadata().partition_columns, self.properties)
        if listed is not None:
            about = {name: text for name, text in stamp.about.items() if name not in (POSITIONS, COPY)}
            _set_properties(self._opened(self.version, is_small=True), listed, Stamp({}, about))
            self._handle = self._opened(self.version + 1, is_small=False)

    def append(self, rows: pa.Table, stamp: Stamp) -> None:
        """Add rows. Raises ConflictError, SinkError."""
        self._list_statistics(self._handle.schema().fields, stamp)
        with self._writing():
            write_deltalake(
                self._handle,
                rows,
                mode="append",
                writer_properties=parquet_options(self._handle.schema().fields, _COMPRESSION),
                commit_properties=_properties(stamp),
            )

    def upsert(self, upserts: Upserts, stamp: Stamp) -> None:
        """Delete, update and insert. Raises ConflictError, SinkError."""
        self._check_timestamps()
        self._list_statistics(self._handle.schema().fields, stamp)
        before = self._handle.version()
        names = list(upserts.columns)
        values = {_quoted(name): f"s.{column(number)}" for number, name in enumerate(names)}
        updates = dict(values)
        for number, name in enumerate(names):
            flag = absent_column(number)
            if flag in upserts.rows.column_names:
                updates[_quoted(name)] = (
                    f"CASE WHEN coalesce(s.{flag}, false) THEN t.{_quoted(name)} ELSE s.{column(number)} END"
                )
        on = " AND ".join(f"t.{_quoted(name)} = s.{column(names.index(name))}" for name in upserts.key)
        with self._writing():
            merger = self._handle.merge(
                upserts.rows,
                on,
                source_alias="s",
                target_alias="t",
                writer_properties=parquet_options(self._handle.schema().fields, _COMPRESSION),
                commit_properties=_properties(stamp),
            )
            merger = merger.when_matched_delete(f"s.{GONE}").when_matched_update(updates)
            merger.when_not_matched_insert(values, f"NOT (s.{GONE})").execute()
        if self._handle.version() == before:  # no row was changed, so the library has committed nothing
            self.mark(stamp)

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Commit rows. What a condition of the table does not permit is reported with the condition."""
        with _committing():
            try:
                yield
            except DeltaError as error:
                required = [f"{field.name} IS NOT NULL" for field in self._handle.schema().fields if not field.nullable]
                texts = [*(rule.text for rule in self.rules), *required]
                found = violated(error, f"writing {self._files.where(self._path)}", texts)
                if found is not None:
                    raise found from None  # the library's text may have values of rows
                if not isinstance(error, CommitFailedError):
                    for rule in self.rules:
                        rule.check()
                raise

    def alter(self, altered: Altered, stamp: Stamp) -> None:
        """See VersionedTable of sinks/lake/tables.py. All but a new column without a value writes every file again.

        A reader of Delta reads all files by the one schema, so a file must not have an older type.
        """
        if not (altered.fills or altered.types or altered.relaxed):
            fields = Schema.from_arrow(pa.schema([field for field, _ in altered.added])).fields
            with _committing():
                self._handle.alter.add_columns(fields, commit_properties=_properties(stamp))
            return
        fields = [_altered(field, altered) for field in self.schema]
        schema = pa.schema([*fields, *(field for field, _ in altered.added)])
        self._list_statistics(Schema.from_arrow(pa.schema(fields)).fields, stamp)
        rows = _rewritten(self._handle.to_pyarrow_dataset(parquet_read_options=READ_EXACTLY), schema, altered)
        with _committing():
            write_deltalake(
                self._handle,
                pa.RecordBatchReader.from_batches(schema, rows),
                mode="overwrite",
                schema_mode="overwrite",
                partition_by=self._handle.metadata().partition_columns or None,
                writer_properties=parquet_options(Schema.from_arrow(schema).fields, _COMPRESSION),
                commit_properties=_properties(stamp),
            )

    @property
    def created(self) -> datetime:
        """See VersionedTable of sinks/lake/tables.py."""
        return datetime.fromtimestamp((self._handle.metadata().created_time or 0) / 1000, UTC)

    @property
    def size(self) -> TableSize:
        """See VersionedTable of sinks/lake/tables.py."""
        sizes = pa.table(self._handle.get_add_actions(flatten=True))["size_bytes"].to_pylist()
        return TableSize(len(sizes), sum(sizes))

    def compact(self, target_bytes: int, stamp: Stamp) -> None:
        """See VersionedTable of sinks/lake/tables.py."""
        self._check_timestamps()
        self._list_statistics(self._handle.schema().fields, stamp)
        options = parquet_options(self._handle.schema().fields, _COMPACTED, _COMPACTED_LEVEL)
        with _committing():
            self._handle.optimize.compact(
                target_size=target_bytes, writer_properties=options, commit_properties=_properties(stamp)
            )

    def expire(self, before: datetime, stamp: Stamp) -> Expired:  # noqa: ARG002
        """Nothing: versions of Delta end when their files are removed. The log has a retention of its own."""
        return Expired()

    def remove_unneeded(self, expired: frozenset[str], kept: datetime, orphans: datetime, stamp: Stamp) -> int:  # noqa: ARG002
        """See VersionedTable. delta-rs only lists the files.

        Its own removal is not used: it begins with a commit on the newest version, and then removes what the version
        that was read does not need. A restore in between may need just that.
        """
        names = self._unneeded(_hours_since(kept), full=False) if orphans < kept else set()
        names |= self._unneeded(_hours_since(orphans), full=not self._has_strange_folders())
        if not names:
            return 0
        self.mark(stamp)
        with as_sink_errors(self._files, "removing files of a table"):
            self._files.remove([self._path / name for name in sorted(names)])
        return len(names)

    def _has_strange_folders(self) -> bool:
        """Whether files that the log does not name are in folders that are none of a partition (``name=value``).

        They may be another table's. delta-rs would take them all for orphans.
        """
        found = self._unneeded(0, full=True)
        return any("=" not in folder for name in found for folder in name.split("/")[:-1])

    def _unneeded(self, hours: int, *, full: bool) -> set[str]:
        """Files that no version of the last hours needs: those that the log has removed.

        ``full``: also those that it does not name, and that are older.
        """
        with as_sink_errors(self._files, "listing the files of a table"):
            return set(self._handle.vacuum(hours, dry_run=True, full=full, enforce_retention_duration=False))

    def set_properties(self, properties: Mapping[str, str]) -> None:
        """Change table properties. Raises ConflictError, SinkError."""
        _set_properties(self._handle, properties, Stamp())


def _taken(names: Collection[str], properties: Mapping[str, str], *, appends: bool) -> tuple[str, str] | None:
    """A column that delta-rs adds by itself, if the table has one, and what it does then."""
    added = {_FILE_ID: "reads them"}
    if not appends:
        added |= dict.fromkeys(_MERGED | {f"{_CASE}{name}" for name in names}, "merges them")
        if properties.get(_CHANGE_DATA, "").lower() == "true":
            added[_CHANGE_TYPE] = f"writes the changes of a table with {_CHANGE_DATA}"
    return next(((name, added[name]) for name in names if name in added), None)


def _hours_since(time: datetime) -> int:
    return math.ceil((datetime.now(UTC) - time) / timedelta(hours=1))


def _set_properties(handle: DeltaTable, properties: Mapping[str, str], stamp: Stamp) -> None:
    with _committing():
        handle.alter.set_table_properties(
            dict(properties), raise_if_not_exists=False, commit_properties=_properties(stamp)
        )


def _rewritten(rows: Dataset, schema: pa.Schema, altered: Altered) -> Iterator[pa.RecordBatch]:
    """All rows under ``schema``, read by pyarrow: delta-rs itself cannot read while it writes."""
    for batch in rows.to_batches():
        found = pa.table(batch)
        for field, value in altered.added:
            found = found.append_column(field, pa.repeat(value, found.num_rows))
        yield from found.select(schema.names).cast(schema).to_batches()


def _altered(field: pa.Field, altered: Altered) -> pa.Field:
    found = field.with_type(altered.types.get(field.name, field.type))
    return found.with_nullable(True) if field.name in altered.relaxed else found


def _own_entries(entry: Mapping[str, Any]) -> dict[str, str]:
    return {name: str(value) for name, value in entry.items() if name.startswith(OWN_ENTRIES)}


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


def read(files: Files, path: Path, *, is_small: bool = False) -> DeltaLakeTable | None:
    """The table at its newest version; None if it does not exist. ``is_small``: a ledger. Raises SinkError."""
    if not files.may_have(path / "_delta_log"):
        return None
    with as_sink_errors(files, f"reading {files.where(path)}"):
        try:
            options = files.delta_options(is_small=is_small)
            return DeltaLakeTable(DeltaTable(files.where(path), storage_options=options), files, path)
        except TableNotFoundError:
            return None


def create(
    files: Files,
    path: Path,
    schema: pa.Schema,
    properties: Mapping[str, str],
    comment: str | None = None,
    *,
    partitions: Sequence[PartitionField] = (),
) -> str:
    """Create the table, and return its id. Raises ConflictError if it exists, SinkError."""
    with as_sink_errors(files, f"creating {files.where(path)}"):
        try:
            files.make_room(path)
            made = DeltaTable.create(
                files.where(path),
                schema,
                storage_options=files.delta_options(is_small=False),
                mode="error",
                partition_by=[field.column for field in partitions] or None,
                description=comment,
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
    return str(made.metadata().id)


def _predicate(bounds: ValueBounds) -> str:
    if bounds.among:
        return f"{_quoted(bounds.column)} IN ({', '.join(map(_literal, bounds.among))})"
    ends = ((">=", bounds.low), ("<=", bounds.high))
    return " AND ".join(f"{_quoted(bounds.column)} {sign} {_literal(end)}" for sign, end in ends if end is not None)


def _literal(value: int | str) -> str:
    return str(value) if isinstance(value, int) else "'" + value.replace("'", "''") + "'"


def _quoted(name: str) -> str:
    """A column's name in an expression."""
    return '"' + name.replace('"', '""') + '"'


@contextmanager
def as_sink_errors(files: Files, doing: str) -> Iterator[None]:
    """Raise errors of the library, and of files, as the SinkError that means the same."""
    try:
        yield
    except (DeltaError, OSError) as error:
        found = refused(error, doing)
        if found is not None:
            raise found from None  # the library's text may have values of rows
        raise files.sink_error(_lost_file(error) or error, doing) from (None if files.hides_causes else error)


def _lost_file(error: Exception) -> LostFileError | None:
    """The file of rows that the error is about. Files of the log may be removed while it is read."""
    found = _LOST.search(str(error))
    return None if found is None or "/_delta_log/" in found["file"] else LostFileError(found["file"])


@contextmanager
def _reading_rows() -> Iterator[None]:
    """Arrow's reader wraps what the store answers into errors of its own."""
    try:
        yield
    except pa.ArrowException as error:
        raise OSError(str(error)) from error


@contextmanager
def _committing() -> Iterator[None]:
    try:
        yield
    except CommitFailedError as error:
        if is_refusal(error):
            raise
        raise ConflictError from error


def _properties(stamp: Stamp) -> CommitProperties:
    return CommitProperties(
        custom_metadata=dict(stamp.about),
        max_commit_retries=0,
        app_transactions=[Transaction(app_id, version) for app_id, version in sorted(stamp.transactions.items())],
    )


def _type_name(type_: object) -> str:
    name = getattr(type_, "type", None)
    return str(name) if isinstance(name, str) else str(type_)
