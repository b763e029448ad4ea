"""Files of tables: only those below folders that the operator has listed.

A table's metadata names its files by their whole addresses, so a catalog could name any file of this machine.
"""

from functools import lru_cache
from pathlib import Path

from pyiceberg.io import InputFile, OutputFile
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from headgate.config.secrets import NotPermittedError, check_folder
from headgate.sinks.contract import SinkRefusedError

__all__ = ["ListedFiles", "check_location"]

_FOLDERS_MAX = 1024
"""A table has few folders: one for metadata and one for each partition."""


class ListedFiles(PyArrowFileIO):
    """Local files below the folders of HEADGATE_ALLOWED_FOLDERS. Raises SinkRefusedError for others."""

    def new_input(self, location: str) -> PyArrowFile:
        """See FileIO."""
        check_location(location)
        return super().new_input(location)

    def new_output(self, location: str) -> PyArrowFile:
        """See FileIO."""
        check_location(location)
        return super().new_output(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """See FileIO."""
        check_location(location if isinstance(location, str) else location.location)
        super().delete(location)


def check_location(location: str) -> None:
    """Raise SinkRefusedError for a place that is not in a listed folder."""
    scheme, _, path = PyArrowFileIO.parse_location(location)
    if scheme != "file":
        raise SinkRefusedError(
            f"the table has files in an object store ({scheme}://). Sinks of type iceberg write to local and mounted "
            "folders only"
        )
    _check_folder(str(Path(path).parent))


@lru_cache(_FOLDERS_MAX)
def _check_folder(folder: str) -> None:
    try:
        check_folder(Path(folder), "the table's metadata")
    except NotPermittedError as error:
        raise SinkRefusedError(str(error)) from error
