"""Archives with all their jars, pinned by their sha256, of programs that the registry has in no other form.

The Debezium JDBC sink, a peer in ``headgate bench peers``, is made of jars of which two (debezium-sink,
hibernate-agroal) cannot be had singly.
"""

import hashlib
import tarfile
import tempfile
from pathlib import Path
from typing import Final

import msgspec

from headgate.provisioning import ivy
from headgate.provisioning.cache import cache_folder, exclusive
from headgate.provisioning.errors import ArtifactError
from headgate.provisioning.ivy import Coordinate


class Archive(msgspec.Struct, frozen=True):
    """One tar.gz of the registry; ``name`` is what its folder begins with."""

    name: str
    coordinate: Coordinate
    classifier: str
    sha256: str


JDBC_SINK: Final = Archive(
    "debezium-jdbc",
    Coordinate("io.debezium", "debezium-connector-jdbc", "3.6.0.Final"),
    "plugin",
    "c23af8d416f0f801ffb0271b1a8fd9b5360ff8d66b0dd650e066bb56ecfddc05",
)


def ensure_jdbc_sink() -> Path:
    """The JDBC sink, unpacked, as an entry of Connect's ``plugin.path``. Raises ArtifactError."""
    return ensure_archive(JDBC_SINK)


def ensure_archive(archive: Archive) -> Path:
    """The folder in which the archive is unpacked; fetched on first use. Raises ArtifactError."""
    folder = cache_folder() / f"{archive.name}-{archive.sha256[:12]}"
    with exclusive(cache_folder() / f"{archive.name}.lock"):
        if not folder.is_dir():
            _fetch(archive, folder)
    return folder


def _fetch(archive: Archive, folder: Path) -> None:
    work = cache_folder() / f"ivy-{archive.name}"
    packed = ivy.fetch_archive(archive.coordinate, archive.classifier, work)
    with packed.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    if digest != archive.sha256:
        ivy.discard(work)
        raise ArtifactError(
            f"{packed.name} has sha256 {digest}, expected is {archive.sha256}: nothing was kept; try again"
        )
    with tempfile.TemporaryDirectory(dir=cache_folder(), prefix=f"{archive.name}-new-") as temporary:
        unpacked = Path(temporary, "unpacked")
        with tarfile.open(packed) as content:
            content.extractall(unpacked, filter="data")
        unpacked.rename(folder)
    ivy.discard(work)
