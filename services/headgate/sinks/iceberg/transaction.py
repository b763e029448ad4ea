"""Transactions and overwrites as pyiceberg has them, without what makes each commit of a table slower than the last."""

from collections.abc import Callable
from typing import Any, Final

from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table, Transaction
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Operation
from pyiceberg.table.update import AddSnapshotUpdate, RemoveSnapshotsUpdate
from pyiceberg.table.update.snapshot import _OverwriteFiles

__all__ = ["OneTransaction", "forget_snapshots", "move", "overwrite"]

SNAPSHOTS_MAX: Final = 10
"""Of a ledger. Its state is in its properties, so earlier ones are not read."""


class OneTransaction(Transaction):
    """A transaction whose ``table_metadata`` is remembered until there is another update.

    pyiceberg asks for it 16 times per commit, and copies every snapshot of the table each time, so commits grew slower
    with each version that is kept. Nothing changes what it returns. What is committed are the updates, on the metadata
    that the catalog's requirements name (catalog.py), so the fence does not depend on it.
    """

    def __init__(self, table: Table, autocommit: bool = False) -> None:
        super().__init__(table, autocommit)
        self._known: tuple[TableMetadata, tuple[Any, ...], TableMetadata] | None = None

    @property
    def table_metadata(self) -> TableMetadata:
        """The table's metadata with all updates so far."""
        base, updates, known = self._table.metadata, self._updates, self._known
        # Both are values: each update makes another tuple, and a table that is read again has other metadata.
        if known is None or known[0] is not base or known[1] is not updates:
            known = self._known = base, updates, super().table_metadata if updates else base
        return known[2]


class _Overwrite(_OverwriteFiles):
    """Leaves out manifests that have no files any more, as Iceberg's Java library and pyiceberg's appends do.

    pyiceberg's overwrites keep them, so there was one more after each, and every later one read all three times.
    """

    def _existing_manifests(self) -> list[ManifestFile]:
        found = super()._existing_manifests()
        return [manifest for manifest in found if manifest.has_added_files() or manifest.has_existing_files()]

    def _build_manifest_evaluator(self, spec_id: int) -> Callable[[ManifestFile], bool]:
        """A new one for each manifest: pyiceberg's remembers the manifest that it looks at, and threads share it.

        Then files were reported as missing (pyiceberg 0.12), and the commit failed.
        """
        build = super()._build_manifest_evaluator

        def may_have_files(manifest: ManifestFile) -> bool:
            return build(spec_id)(manifest)

        return may_have_files


def move(transaction: Transaction, about: dict[str, str]) -> None:
    """Give the transaction a snapshot, without files if it has none yet. One without updates is not committed."""
    if transaction._updates and not any(isinstance(each, AddSnapshotUpdate) for each in transaction._updates):
        with transaction.update_snapshot(snapshot_properties=about).fast_append():
            pass


def forget_snapshots(transaction: Transaction, metadata: TableMetadata) -> list[str]:
    """Have a table without rows keep its latest snapshots only. Returns files that are not needed after the commit."""
    known = sorted(metadata.snapshots, key=lambda each: each.sequence_number or 0)
    if len(known) < SNAPSHOTS_MAX:
        return []
    old = known[: 1 - SNAPSHOTS_MAX]
    ids = [each.snapshot_id for each in old]
    transaction._apply((RemoveSnapshotsUpdate.model_validate({"snapshot-ids": ids}),))
    return [each.manifest_list for each in old]


def overwrite(transaction: Transaction, about: dict[str, str]) -> _OverwriteFiles:
    """A snapshot that replaces files; ``about`` is in its summary."""
    has_rows = transaction.table_metadata.current_snapshot() is not None
    return _Overwrite(
        operation=Operation.OVERWRITE if has_rows else Operation.APPEND,
        transaction=transaction,
        io=transaction._table.io,
        snapshot_properties=about,
    )
