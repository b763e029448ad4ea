"""Other tables that have their metadata where files of a table are removed."""

import zlib
from typing import Final

import msgspec
from pyiceberg.table import Table

from headgate.sinks.contract import SinkRefusedError
from headgate.sinks.iceberg.files import ListedFiles, same_file
from headgate.sinks.iceberg.table_files import folders_of
from headgate.sinks.lake.binding import LEDGER, binding_of
from headgate.sinks.lake.history import OWN_ENTRIES

__all__ = ["other_tables"]

_METADATA: Final = (".metadata.json", ".metadata.json.gz")
"""The second is how old versions of Iceberg name compressed metadata. New ones write ``.gz.metadata.json``."""

_GZIP: Final = b"\x1f\x8b"
_ANY_HEADER: Final = 16 + zlib.MAX_WBITS
"""Has zlib read gzip's format."""

BYTES_MAX: Final = 256 << 20
"""Of one file of metadata, also after it was decompressed. Metadata of 100 000 snapshots has about 100 MB."""


def other_tables(table: Table) -> dict[str, str]:
    """The ids of tables that have their metadata where files of this one are removed → a file of each.

    Such a table may be of another catalog, of the name's former life, or in a folder below this table's. The id is this
    table's own if another catalog has it too. Metadata that cannot be read counts as a table, named by its file.
    """
    assert isinstance(table.io, ListedFiles)  # noqa: S101 - no other is used
    names = {
        same_file(name): name
        for folder in folders_of(table)
        for name, _ in table.io.files_below(folder)
        if name.endswith(_METADATA)
    }
    log = table.metadata.metadata_log
    known = {same_file(table.metadata_location), *(same_file(each.metadata_file) for each in log)}
    if names.keys() <= known:
        return {}
    known |= _former(table.io, table)
    found = [(name, _read(table.io, name)) for file, name in names.items() if file not in known]
    return {each.table_uuid or name: name for name, each in found if each is not None and _is_another(each, table)}


class _Snapshot(msgspec.Struct, rename="kebab"):
    snapshot_id: int
    summary: dict[str, str] = {}


class _Logged(msgspec.Struct, rename="kebab"):
    metadata_file: str


class _Metadata(msgspec.Struct, rename="kebab"):
    """What is read of a file of metadata. ``table_uuid``: None if the file cannot be read."""

    table_uuid: str | None = None
    properties: dict[str, str] = {}
    current_snapshot_id: int | None = None
    snapshots: list[_Snapshot] | None = None
    metadata_log: list[_Logged] | None = None


def _is_another(found: _Metadata, table: Table) -> bool:
    """Whether metadata that the table's log does not have is of another table, or of this one in another catalog.

    Otherwise it is of a commit that failed: one that added no snapshot, or one of a feed.
    """
    if found.table_uuid != str(table.metadata.table_uuid):
        return True
    theirs, mine = (binding_of(each.get(LEDGER)) for each in (found.properties, table.properties))
    if theirs is not None and mine is not None and theirs.id != mine.id:
        return True
    at = found.current_snapshot_id
    if at in (None, -1) or any(each.snapshot_id == at for each in table.metadata.snapshots):
        return False
    newest = next((each.summary for each in found.snapshots or [] if each.snapshot_id == at), {})
    is_of_a_feed = theirs is not None and any(name.startswith(OWN_ENTRIES) for name in newest)
    return not is_of_a_feed


def _former(files: ListedFiles, table: Table) -> set[tuple[str, str]]:
    """Metadata of versions before those in the table's log, which not every catalog removes: each file names some."""
    found: set[tuple[str, str]] = set()
    at = next((each.metadata_file for each in table.metadata.metadata_log), None)
    while at is not None:
        try:
            read = _read(files, at)
        except SinkRefusedError:  # a former place of the table, where this process may not read and removes nothing
            break
        log = [] if read is None else read.metadata_log or []
        at = log[0].metadata_file if log and same_file(log[0].metadata_file) not in found else None
        found |= {same_file(each.metadata_file) for each in log}
    return found


def _read(files: ListedFiles, name: str) -> _Metadata | None:
    """A file of metadata; None if it was not written to its end, or has been removed."""
    try:
        with files.new_input(name).open() as stream:
            text = stream.read(BYTES_MAX + 1)
    except FileNotFoundError:
        return None
    try:
        whole = _decompressed(text) if text.startswith(_GZIP) else text
        if not whole.rstrip().endswith(b"}"):
            return _Metadata() if len(whole) > BYTES_MAX else None
        return msgspec.json.decode(whole, type=_Metadata)
    except (zlib.error, msgspec.DecodeError):
        return _Metadata()


def _decompressed(text: bytes) -> bytes:
    """Up to one byte above the maximum. Nothing of a file that ends too early."""
    reader = zlib.decompressobj(_ANY_HEADER)
    found = reader.decompress(text, BYTES_MAX + 1)
    return found if reader.eof or len(found) > BYTES_MAX else b""
