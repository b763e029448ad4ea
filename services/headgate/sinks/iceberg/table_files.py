"""The files below a table's folder, and those of them that a version of the table needs."""

from datetime import datetime
from typing import Final

import msgspec
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table

from headgate.sinks.iceberg.files import ListedFiles, same_file
from headgate.sinks.lake.binding import LEDGER, Binding, binding_of

__all__ = ["needed_files", "older_files", "other_tables"]

_METADATA: Final = ".metadata.json"


def other_tables(table: Table) -> frozenset[str]:
    """The ids of tables that have their metadata where files of this one are removed.

    Such a table may be of another catalog, of the name's former life, or in a folder below this table's. The id is this
    table's own if another catalog has it too, and feeds write it there through another ledger. Own metadata beyond the
    table's log is removed by each commit, so few files are read: those of commits that failed.
    """
    assert isinstance(table.io, ListedFiles)  # noqa: S101 - no other is used
    own = {same_file(table.metadata_location), *(same_file(each.metadata_file) for each in table.metadata.metadata_log)}
    mine = _Owner(str(table.metadata.table_uuid), binding_of(table.properties.get(LEDGER)))
    found = {
        _owner(table.io, name)
        for folder in _folders(table)
        for name, _ in table.io.files_below(folder)
        if name.endswith(_METADATA) and same_file(name) not in own
    }
    return frozenset(each.table for each in found if each is not None and each.is_another_than(mine))


class _Owner(msgspec.Struct, frozen=True):
    """The table that metadata is of, and the ledger that it is bound to there."""

    table: str
    bound: Binding | None

    def is_another_than(self, mine: "_Owner") -> bool:
        """Whether it is another table, or the same one that is written through another ledger."""
        if self.bound is None or mine.bound is None:
            return self.table != mine.table
        return (self.table, self.bound.id) != (mine.table, mine.bound.id)


def _owner(files: ListedFiles, name: str) -> _Owner | None:
    """The table that a file of metadata is of; None if it was not written to its end, or has been removed."""
    try:
        with files.new_input(name).open() as stream:
            found = msgspec.json.decode(stream.read())
        return _Owner(str(found["table-uuid"]), binding_of(found.get("properties", {}).get(LEDGER)))
    except (FileNotFoundError, msgspec.DecodeError, KeyError, TypeError):
        return None


def _folders(table: Table) -> tuple[str, ...]:
    location = table.location().rstrip("/")
    return tuple(f"{location}/{folder}" for folder in ("data", "metadata"))


def older_files(table: Table, before: datetime) -> set[str]:
    """Locations of all files below the table's own folders that were last written before that time."""
    assert isinstance(table.io, ListedFiles)  # noqa: S101 - no other is used
    return {name for folder in _folders(table) for name, written in table.io.files_below(folder) if written < before}


def needed_files(table: Table) -> set[str]:
    """Locations that the metadata, its log and all snapshots name."""
    metadata = table.metadata
    needed = {table.metadata_location, *(entry.metadata_file for entry in metadata.metadata_log)}
    for statistics in (*metadata.statistics, *metadata.partition_statistics):
        needed.add(statistics.statistics_path)
    manifests: dict[str, ManifestFile] = {}
    for snapshot in metadata.snapshots:
        needed.add(snapshot.manifest_list)
        manifests |= {each.manifest_path: each for each in snapshot.manifests(table.io)}
    for path, manifest in manifests.items():
        needed.add(path)
        needed |= {entry.data_file.file_path for entry in manifest.fetch_manifest_entry(table.io)}
    return needed
