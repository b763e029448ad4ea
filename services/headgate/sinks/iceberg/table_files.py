"""The files below a table's folder, and those of them that a version of the table needs."""

from datetime import datetime
from pathlib import Path

from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import ManifestFile
from pyiceberg.table import Table

from headgate.sinks.iceberg.files import check_location

__all__ = ["needed_files", "older_files"]


def older_files(table: Table, before: datetime) -> set[str]:
    """Locations of all files below the table's own folders that were last written before that time."""
    location = table.location()
    _, _, root = PyArrowFileIO.parse_location(location)
    found = set()
    for folder in ("data", "metadata"):
        for path in Path(root, folder).rglob("*"):
            if path.is_file() and path.stat().st_mtime < before.timestamp():
                name = f"{location.rstrip('/')}/{path.relative_to(root)}"
                check_location(name)
                found.add(name)
    return found


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
