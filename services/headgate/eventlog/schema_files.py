"""The Avro schemas of the control topics: where their files are, and what their fixed ids mean.

``ids.json`` names every version of every record ever written: ``{"<id>": {"record", "version", "schema"}}`` with
id = 1000 + 100 * type + version. Files are never changed once released: a new version is a new file and a new id, so
that every value on a topic stays readable (written by its own schema, read as the newest). An unknown id in Headgate's
range was therefore written by a newer Headgate; an id outside of it is not Headgate's.

A **level** is a generation of all schemas (docs/adr/0008): at level L every record is written in its newest version of
at most L. A new version of a record therefore takes the number of the level that it comes with, and may skip some.

The files are looked up in two places only, in this order: ``headgate/eventlog/schemas`` (an installed wheel), then
``schemas/`` at the root of the checkout (an editable install).
"""

import json
from functools import cache
from pathlib import Path
from typing import Any, Final

import fastavro
import msgspec

from headgate.eventlog.log import LEVEL_FIRST
from headgate.records.base import Record
from headgate.records.registry import KEY_FORMS

ID_FIRST: Final = 1000
ID_LAST: Final = 9999
"""Our range of schema ids: far above what a young registry hands out, small enough for a table to be read."""

TYPE_STEP: Final = 100
"""Ids per record type, hence at most 99 versions of one record: version 0 does not exist."""

RECORD_TYPES: Final[dict[str, type[Record]]] = {
    form.record.__name__: form.record for forms in KEY_FORMS.values() for form in forms
}


class SchemaFilesError(Exception):
    """The schema files are missing or contradict each other: the installation is broken; the message shows where."""

    code: Final = "schema-files-broken"


class SchemaVersion(msgspec.Struct, frozen=True):
    """One version of one record's schema; ``parsed`` is what fastavro made of its file."""

    id: int
    record: type[Record]
    version: int
    parsed: Any


class SchemaSet(msgspec.Struct, frozen=True):
    """All schemas of an installation, and which of them is written at each level; ``newest`` is the last of those."""

    by_id: dict[int, SchemaVersion]
    newest: dict[type[Record], SchemaVersion]
    written: dict[int, dict[type[Record], SchemaVersion]]

    @property
    def level(self) -> int:
        """The newest level."""
        return max(self.written)


class _Entry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One line of ids.json."""

    record: str
    version: int
    schema: str


def schema_directory() -> Path:
    """The folder with ids.json, by the one rule above. Raises SchemaFilesError."""
    installed = Path(__file__).parent / "schemas"
    checkout = Path(__file__).parents[3] / "schemas"
    for directory in (installed, checkout):
        if (directory / "ids.json").is_file():
            return directory
    raise SchemaFilesError(
        f"no ids.json in {installed} (installed) nor in {checkout} (checkout): install headgate again from a wheel "
        "or a complete checkout"
    )


@cache
def schemas() -> SchemaSet:
    """The schemas of this installation, parsed once per process. Raises SchemaFilesError."""
    return read_schemas(schema_directory())


def read_schemas(directory: Path) -> SchemaSet:
    """Read and check all of ``directory``: ids by the formula, a file for each, every record type present."""
    versions: list[SchemaVersion] = []
    newest: dict[type[Record], SchemaVersion] = {}
    for schema_id, entry in sorted(_read_ids(directory / "ids.json").items()):
        version = _read_version(directory, schema_id, entry)
        versions.append(version)
        known = newest.get(version.record)
        if known is not None and schema_id // TYPE_STEP != known.id // TYPE_STEP:
            raise SchemaFilesError(f"{directory}: {entry.record} has ids {known.id} and {schema_id}, of two types")
        newest[version.record] = version
    if missing := sorted(set(RECORD_TYPES) - {record.__name__ for record in newest}):
        raise SchemaFilesError(f"{directory}: ids.json gives no schema for {', '.join(missing)}")
    return _schema_set(versions)


def _schema_set(versions: list[SchemaVersion]) -> SchemaSet:
    """``versions`` in the order of their ids."""
    levels = range(LEVEL_FIRST, max(version.version for version in versions) + 1)
    written = {level: {v.record: v for v in versions if v.version <= level} for level in levels}
    return SchemaSet({version.id: version for version in versions}, written[max(levels)], written)


def _read_ids(path: Path) -> dict[int, _Entry]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[int, _Entry])
    except (OSError, msgspec.DecodeError) as error:
        raise SchemaFilesError(f"{path}: {error}") from error


def _read_version(directory: Path, schema_id: int, entry: _Entry) -> SchemaVersion:
    where = f"{directory / entry.schema} (id {schema_id})"
    record = RECORD_TYPES.get(entry.record)
    if record is None:
        raise SchemaFilesError(f"{where}: no record {entry.record!r} in headgate.records.control")
    if not ID_FIRST < schema_id <= ID_LAST or entry.version != schema_id % TYPE_STEP or entry.version == 0:
        raise SchemaFilesError(f"{where}: version {entry.version} does not fit id = 1000 + 100 * type + version")
    try:
        parsed = fastavro.parse_schema(json.loads((directory / entry.schema).read_bytes()))
    except (OSError, ValueError, fastavro.schema.SchemaParseException, fastavro.schema.UnknownType) as error:
        raise SchemaFilesError(f"{where}: {error}") from error
    if parsed["name"].rpartition(".")[2] != entry.record:
        raise SchemaFilesError(f"{where}: holds a schema of {parsed['name']}, not of {entry.record}")
    return SchemaVersion(schema_id, record, entry.version, parsed)
