"""The Debezium JDBC sink, a peer in ``headgate bench peers``: an archive with all its jars, pinned by its sha256.

Two of the jars it is made of (debezium-sink, hibernate-agroal) stand in the registry in no other form.
"""

import hashlib
import tarfile
import tempfile
from pathlib import Path
from typing import Final

from headgate.embedded import ivy
from headgate.embedded.cache import cache_folder, exclusive
from headgate.embedded.errors import ArtifactError
from headgate.embedded.ivy import Coordinate

__all__ = ["JDBC_SINK", "ensure_jdbc_sink"]

JDBC_SINK: Final = Coordinate("io.debezium", "debezium-connector-jdbc", "3.6.0.Final")
SHA256: Final = "c23af8d416f0f801ffb0271b1a8fd9b5360ff8d66b0dd650e066bb56ecfddc05"
_CLASSIFIER: Final = "plugin"


def ensure_jdbc_sink() -> Path:
    """The archive unpacked, as an entry of Connect's ``plugin.path``; fetched on first use. Raises ArtifactError."""
    folder = cache_folder() / f"debezium-jdbc-{SHA256[:12]}"
    with exclusive(cache_folder() / "debezium-jdbc.lock"):
        if not folder.is_dir():
            _fetch(folder)
    return folder


def _fetch(folder: Path) -> None:
    work = cache_folder() / "ivy-debezium-jdbc"
    archive = ivy.fetch_archive(JDBC_SINK, _CLASSIFIER, work)
    with archive.open("rb") as content:
        digest = hashlib.file_digest(content, "sha256").hexdigest()
    if digest != SHA256:
        ivy.discard(work)
        raise ArtifactError(f"{archive.name} has sha256 {digest}, expected is {SHA256}: nothing was kept; try again")
    with tempfile.TemporaryDirectory(dir=cache_folder(), prefix="debezium-jdbc-new-") as temporary:
        unpacked = Path(temporary, "plugin")
        with tarfile.open(archive) as packed:
            packed.extractall(unpacked, filter="data")
        unpacked.rename(folder)
    ivy.discard(work)
