"""The files below a table's folder, and those of them that a version of the table needs."""

from datetime import datetime

from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table

from headgate.sinks.iceberg.files import ListedFiles

__all__ = ["folders_of", "needed_files", "older_files"]


def folders_of(table: Table) -> tuple[str, ...]:
    """The folders that a table's own files are in."""
    location = table.location().rstrip("/")
    return tuple(f"{location}/{folder}" for folder in ("data", "metadata"))


def older_files(table: Table, before: datetime) -> set[str]:
    """Locations of all files below the table's own folders that were last written before that time."""
    assert isinstance(table.io, ListedFiles)  # noqa: S101 - no other is used
    return {name for folder in folders_of(table) for name, written in table.io.files_below(folder) if written < before}


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
