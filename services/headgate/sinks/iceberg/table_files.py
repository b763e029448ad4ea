"""The files below a table's folder, and those of them that a version of the table needs."""

from datetime import datetime
from typing import Final

import msgspec
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table

from headgate.sinks.iceberg.files import ListedFiles, same_file

__all__ = ["has_another_table", "needed_files", "older_files"]

_METADATA: Final = ".metadata.json"


def has_another_table(table: Table) -> bool:
    """Whether another table has its metadata in the table's folder: of another catalog, or of the name's former life.

    Its files are not ours to remove. Own metadata beyond the table's log is removed by each commit, so few files are
    read: those of commits that failed.
    """
    assert isinstance(table.io, ListedFiles)  # noqa: S101 - no other is used
    own = {same_file(table.metadata_location), *(same_file(each.metadata_file) for each in table.metadata.metadata_log)}
    return any(
        _uuid(table.io, name) not in (None, str(table.metadata.table_uuid))
        for name, _ in table.io.files_below(f"{table.location().rstrip('/')}/metadata")
        if name.endswith(_METADATA) and same_file(name) not in own
    )


def _uuid(files: ListedFiles, name: str) -> str | None:
    """The table that a file of metadata is of; None if it was not written to its end, or has been removed."""
    try:
        with files.new_input(name).open() as stream:
            return str(msgspec.json.decode(stream.read())["table-uuid"])
    except (FileNotFoundError, msgspec.DecodeError, KeyError, TypeError):
        return None


def older_files(table: Table, before: datetime) -> set[str]:
    """Locations of all files below the table's own folders that were last written before that time."""
    assert isinstance(table.io, ListedFiles)  # noqa: S101 - no other is used
    location = table.location().rstrip("/")
    return {
        name
        for folder in ("data", "metadata")
        for name, written in table.io.files_below(f"{location}/{folder}")
        if written < before
    }


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
