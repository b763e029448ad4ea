"""One version of an Iceberg table: what it has, and commits on exactly this version.

Positions are table properties, so at a SQL catalog a commit of positions alone makes no snapshot. A commit of rows has
them in its snapshot's summary as well, for people, and to notice a table that was set back: properties stay as they are
then.
"""

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import Final

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.expressions import AlwaysTrue, And, BooleanExpression, GreaterThanOrEqual, In, LessThanOrEqual, Reference
from pyiceberg.expressions.literals import literal
from pyiceberg.io.pyarrow import _ConvertToIceberg, visit_pyarrow
from pyiceberg.table import Transaction
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import IntegerType, NestedField, PrimitiveType

from headgate.config.crash_points import CrashPoint, reach
from headgate.config.partitioning import PartitionField
from headgate.sinks.contract import SinkError, SinkRefusedError
from headgate.sinks.iceberg.exact_table import ExactTable
from headgate.sinks.iceberg.files import same_file
from headgate.sinks.iceberg.other_tables import other_tables
from headgate.sinks.iceberg.partitions import RULES, UNCHANGED, fields_of
from headgate.sinks.iceberg.properties import check_properties
from headgate.sinks.iceberg.rewriting import Rewriting
from headgate.sinks.iceberg.table_files import needed_files, older_files
from headgate.sinks.iceberg.transaction import OneTransaction, move
from headgate.sinks.lake.binding import LEDGER
from headgate.sinks.lake.history import OWN_ENTRIES
from headgate.sinks.lake.partitioning import PartitionRules
from headgate.sinks.lake.shape import KEY
from headgate.sinks.lake.tables import (
    Altered,
    ConflictError,
    Expired,
    Stamp,
    TableSize,
    Upserts,
    ValueBounds,
    Version,
)

__all__ = ["IcebergTable"]

_log = logging.getLogger(__name__)

CLEANED: Final = "headgate.cleaned"
"""The property that counts how often files were removed, so that doing it moves the table's version."""

FILE_FORMAT: Final = "write.format.default"
_PARQUET: Final = "parquet"

FORMAT_VERSION: Final = 2
"""Version 1 numbers no snapshots, and pyiceberg does not write all of version 3."""


class IcebergTable:
    """See VersionedTable of sinks/lake/tables.py."""

    def __init__(self, handle: ExactTable) -> None:
        self._handle = handle

    @property
    def id(self) -> str:
        """See VersionedTable."""
        return str(self._handle.metadata.table_uuid)

    @property
    def schema(self) -> pa.Schema:
        """See VersionedTable."""
        return self._handle.schema().as_arrow()

    @property
    def types(self) -> dict[str, str]:
        """See VersionedTable."""
        return {field.name: str(field.field_type) for field in self._fields}

    @property
    def key(self) -> tuple[str, ...]:
        """Its identifier fields, or else what a property names."""
        identifiers = self._handle.schema().identifier_field_ids
        if identifiers:
            return tuple(field.name for field in self._fields if field.field_id in identifiers)
        try:
            return tuple(map(str, json.loads(self._handle.properties.get(KEY, "[]"))))
        except ValueError:
            return ()

    @property
    def _fields(self) -> tuple[NestedField, ...]:
        return self._handle.schema().fields

    @property
    def partitions(self) -> tuple[PartitionField, ...]:
        """See VersionedTable."""
        return fields_of(self._handle.spec(), self._handle.schema())

    @property
    def folders(self) -> dict[str, str]:
        """See VersionedTable."""
        names = (field.name for field in self._handle.spec().fields)
        return {field.column: name for field, name in zip(self.partitions, names, strict=True)}

    def is_name_of_field(self, name: str, former: str | None = None) -> bool:
        """See VersionedTable. Former specs stay in the metadata, so the fields cannot be renamed instead."""
        id_ = None if former is None else self._handle.schema().find_field(former).field_id
        fields = (field for spec in self._handle.specs().values() for field in spec.fields if field.name == name)
        return any(not (isinstance(each.transform, UNCHANGED) and each.source_id == id_) for each in fields)

    @property
    def partition_rules(self) -> PartitionRules:
        """See VersionedTable."""
        return RULES

    @property
    def ledger(self) -> str | None:
        """See VersionedTable."""
        return self._handle.properties.get(LEDGER)

    def renaming(self, former: str, name: str) -> str:
        """See VersionedTable."""
        return (
            "Rename it with pyiceberg: with table.update_schema() as update: "
            f"update.rename_column({former!r}, {name!r})"
        )

    def check(self, name: str, *, appends: bool) -> None:  # noqa: ARG002
        """See VersionedTable."""
        version = self._handle.metadata.format_version
        if version != FORMAT_VERSION:
            raise SinkRefusedError(
                f"table {name} has format version {version}, and version {FORMAT_VERSION} is supported. Create it "
                f"with the property format-version={FORMAT_VERSION}, or upgrade it"
            )
        format_ = self._handle.properties.get(FILE_FORMAT, _PARQUET)
        if format_.lower() != _PARQUET:
            raise SinkRefusedError(
                f"table {name} has the property {FILE_FORMAT}={format_}, and pyiceberg only writes {_PARQUET}. "
                "Unset it: a table may have files of several formats"
            )
        check_properties(name, self._handle.properties)

    @property
    def rules(self) -> tuple[()]:
        """See Table. The format has none."""
        return ()

    def transaction(self, app_id: str) -> int | None:
        """See VersionedTable. It is a property."""
        found = self._handle.properties.get(app_id)
        return None if found is None else int(found)

    def is_set_back_behind(self, written: str) -> bool:
        """See VersionedTable. Commits whose snapshots have expired cannot be known."""
        snapshots = {each.snapshot_id: each for each in self._handle.metadata.snapshots}
        marked = [each for each in snapshots.values() if _has(each, written)]
        if not marked:
            return False
        last = max(marked, key=lambda each: each.sequence_number or 0)
        at = self._handle.current_snapshot()
        while at is not None and (at.sequence_number or 0) > (last.sequence_number or 0):
            if at.parent_snapshot_id is not None and at.parent_snapshot_id not in snapshots:
                return False
            at = None if at.parent_snapshot_id is None else snapshots[at.parent_snapshot_id]
        return at is None or at.snapshot_id != last.snapshot_id

    def versions(self) -> list[Version]:
        """See VersionedTable. Commits without a snapshot cannot be read again, so they are left out."""
        snapshots = sorted(self._handle.metadata.snapshots, key=lambda each: each.sequence_number or 0)
        return [Version(str(each.snapshot_id), each.timestamp_ms, _own_entries(each)) for each in snapshots]

    def keys(self, columns: Sequence[str]) -> pa.Table:
        """See VersionedTable."""
        return self._handle.scan(selected_fields=tuple(columns)).to_arrow().select(list(columns))

    def scan(self, columns: Sequence[str], bounds: ValueBounds | None) -> Iterator[pa.RecordBatch]:
        """See VersionedTable."""
        condition: BooleanExpression = AlwaysTrue()
        if bounds is not None and bounds.low is not None:
            condition = GreaterThanOrEqual(term=Reference(bounds.column), value=literal(bounds.low))
        if bounds is not None and bounds.high is not None:
            condition = And(condition, LessThanOrEqual(term=Reference(bounds.column), value=literal(bounds.high)))
        if bounds is not None and bounds.among:
            condition = In(term=Reference(bounds.column), values={literal(each) for each in bounds.among})
        found = self._handle.scan(row_filter=condition, selected_fields=tuple(columns))
        yield from found.to_arrow_batch_reader()

    def mark(self, stamp: Stamp) -> None:
        """See VersionedTable."""
        with self._committing(stamp):
            pass

    def bind(self, ledger: str, stamp: Stamp) -> None:
        """See VersionedTable."""
        with self._committing(stamp) as transaction:
            transaction.set_properties({LEDGER: ledger})

    def append(self, rows: pa.Table, stamp: Stamp) -> None:
        """See VersionedTable."""
        writing = Rewriting(self._handle)
        with self._committing(stamp, writing) as transaction:
            writing.append(rows, transaction, dict(stamp.about))

    def upsert(self, upserts: Upserts, stamp: Stamp) -> None:
        """See VersionedTable."""
        writing = Rewriting(self._handle)
        with self._committing(stamp, writing) as transaction:
            writing.upsert(upserts, transaction, dict(stamp.about))

    def alter(self, altered: Altered, stamp: Stamp) -> None:
        """See VersionedTable. Columns have ids, so data files stay as they are, unless their rows get a value."""
        writing = Rewriting(self._handle)
        with self._committing(stamp, writing) as transaction:
            with transaction.update_schema() as update:
                for name, type_ in altered.types.items():
                    update.update_column((name,), field_type=_iceberg_type(type_))
                for name in sorted(altered.relaxed):
                    update.update_column((name,), required=False)
                for former, name in altered.renamed.items():
                    update.rename_column((former,), name)
                for field, _ in altered.added:
                    update.add_column((field.name,), _iceberg_type(field.type), doc=_comment(field))
            if KEY in self._handle.properties and altered.renamed:
                key = [altered.renamed.get(name, name) for name in json.loads(self._handle.properties[KEY])]
                transaction.set_properties({KEY: json.dumps(key, ensure_ascii=False)})
            if altered.fills:
                writing.fill(altered, transaction, dict(stamp.about))

    @property
    def created(self) -> datetime:
        """See VersionedTable. The metadata does not have that time, so it is that of the oldest snapshot."""
        metadata = self._handle.metadata
        first = min((each.timestamp_ms for each in metadata.snapshots), default=metadata.last_updated_ms)
        return datetime.fromtimestamp(first / 1000, UTC)

    @property
    def size(self) -> TableSize:
        """See VersionedTable."""
        sizes = [task.file.file_size_in_bytes for task in self._handle.scan().plan_files()]
        return TableSize(len(sizes), sum(sizes))

    def compact(self, target_bytes: int, stamp: Stamp) -> None:
        """See VersionedTable."""
        writing = Rewriting(self._handle)
        with self._committing(stamp, writing) as transaction:
            writing.compact(target_bytes, next(iter(self.key), None), transaction, dict(stamp.about))
            reach(CrashPoint.BEFORE_COMMIT)

    def expire(self, before: datetime, stamp: Stamp) -> Expired:  # noqa: ARG002
        """See VersionedTable. Snapshots that a branch or a tag names stay."""
        snapshots = self._handle.metadata.snapshots
        if not any(each.timestamp_ms < before.timestamp() * 1000 for each in snapshots):
            return Expired()
        needed = needed_files(self._handle)
        try:
            self._handle.maintenance.expire_snapshots().older_than(before).commit()
        except CommitFailedException as error:
            raise ConflictError from error
        self._handle.refresh()
        left = self._handle.metadata.snapshots
        return Expired(len(snapshots) - len(left), frozenset(needed - needed_files(self._handle)))

    def remove_unneeded(self, expired: frozenset[str], kept: datetime, orphans: datetime, stamp: Stamp) -> int:  # noqa: ARG002
        """See VersionedTable."""
        others = other_tables(self._handle)
        old = expired if others else older_files(self._handle, orphans) | expired
        if self.id in others:  # the other catalog's version may need each file that both have
            _log.warning(
                "no file of table %s is removed: %s looks like its version in another catalog. Remove that file if no "
                "catalog has it", self._handle.name(), others[self.id]
            )  # fmt: skip
            return 0
        if not old:
            return 0
        number = int(self._handle.properties.get(CLEANED, "0")) + 1
        self.mark(Stamp({CLEANED: number}, stamp.about))
        self._handle.refresh()
        needed = set(map(same_file, needed_files(self._handle)))
        unneeded = {file for file in old if same_file(file) not in needed}
        for file in sorted(unneeded):
            with suppress(FileNotFoundError):  # another program that cleans has removed it
                self._handle.io.delete(file)
        return len(unneeded)

    @contextmanager
    def _committing(self, stamp: Stamp, writing: Rewriting | None = None) -> Iterator[Transaction]:
        """Commit the transaction and the stamp in one step. Files of a commit that was refused are removed.

        Those of one whose answer is lost stay: it may have landed.
        """
        check_properties(".".join(self._handle.name()), self._handle.properties)
        transaction = OneTransaction(self._handle)
        try:
            yield transaction
        except (SinkError, ValueError):
            if writing is not None:
                writing.discard()
            raise
        try:
            if stamp.transactions:
                transaction.set_properties({name: str(version) for name, version in stamp.transactions.items()})
            if self._handle.is_moved_by_snapshots:
                move(transaction, dict(stamp.about))
            transaction.commit_transaction()
        except CommitFailedException as error:
            if writing is not None:
                writing.discard()
            raise ConflictError from error


def _iceberg_type(type_: pa.DataType) -> PrimitiveType:
    """The type of a column that a lake's type was mapped to; Iceberg has no integers of fewer bits."""
    if type_ in (pa.int8(), pa.int16()):
        return IntegerType()
    found = visit_pyarrow(type_, _ConvertToIceberg())
    assert isinstance(found, PrimitiveType)  # noqa: S101 - no lake type has parts
    return found


def _comment(field: pa.Field) -> str | None:
    comment = (field.metadata or {}).get(b"comment")
    return None if comment is None else comment.decode()


def _own_entries(snapshot: Snapshot) -> dict[str, str]:
    entries = {} if snapshot.summary is None else snapshot.summary.additional_properties
    return {name: value for name, value in entries.items() if name.startswith(OWN_ENTRIES)}


def _has(snapshot: Snapshot, entry: str) -> bool:
    return snapshot.summary is not None and entry in snapshot.summary.additional_properties
