"""Files of tables: only those below folders, and places in the object store, that the operator has listed.

A table's metadata names its files by their whole addresses, so a catalog could name any file of this machine, or of any
bucket that the keys open.
"""

import posixpath
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import Final

from pyarrow.fs import FileSelector, FileSystem, FileType, S3FileSystem
from pyiceberg.io import (
    S3_ACCESS_KEY_ID,
    S3_CONNECT_TIMEOUT,
    S3_ENDPOINT,
    S3_REGION,
    S3_SECRET_ACCESS_KEY,
    S3_SESSION_TOKEN,
    InputFile,
    InputStream,
    OutputFile,
)
from pyiceberg.io.pyarrow import PyArrowFile, PyArrowFileIO

from headgate.config.secrets import NotPermittedError, check_bucket, check_folder
from headgate.sinks.contract import SinkRefusedError
from headgate.sinks.lake.files import LostFileError
from headgate.sinks.lake.store import CA_FILE

__all__ = ["ListedFiles", "listed_files", "same_file"]

KEYS_MAX: Final = 4
"""Of a catalog at once: those in use, and those that replace them."""

_STORE: Final = frozenset({"s3", "s3a", "s3n"})
"""What engines call the protocol. Hadoop's have names of their own for it."""

_FOLDERS_MAX = 1024
"""A table has few folders: one for metadata and one for each partition."""


class ListedFiles(PyArrowFileIO):
    """Files below the places of HEADGATE_ALLOWED_FOLDERS. Raises SinkRefusedError for others.

    Those in object stores are of the one store whose options it is given.
    """

    def _initialize_s3_fs(self, netloc: str | None) -> FileSystem:
        """See PyArrowFileIO, whose properties cannot name a CA."""
        ca_file = self.properties.get(CA_FILE)
        if ca_file is None:
            return super()._initialize_s3_fs(netloc)
        return S3FileSystem(
            endpoint_override=self.properties[S3_ENDPOINT],
            region=self.properties[S3_REGION],
            access_key=self.properties.get(S3_ACCESS_KEY_ID),
            secret_key=self.properties.get(S3_SECRET_ACCESS_KEY),
            session_token=self.properties.get(S3_SESSION_TOKEN),
            connect_timeout=float(self.properties[S3_CONNECT_TIMEOUT]),
            tls_ca_file_path=ca_file,
        )

    def new_input(self, location: str) -> PyArrowFile:
        """See FileIO."""
        self.check(location)
        found = super().new_input(location)
        return _NeededFile(found.location, found._path, found._filesystem, found._buffer_size)

    def new_output(self, location: str) -> PyArrowFile:
        """See FileIO."""
        self.check(location)
        return super().new_output(location)

    def delete(self, location: str | InputFile | OutputFile) -> None:
        """See FileIO."""
        self.check(location if isinstance(location, str) else location.location)
        super().delete(location)

    def check(self, location: str) -> None:
        """Raise SinkRefusedError for a place that is not a listed one."""
        scheme, _, path = PyArrowFileIO.parse_location(location)
        if scheme in _STORE and S3_ENDPOINT in self.properties:
            _check(f"s3://{path.rpartition('/')[0]}", check_bucket)
        elif scheme == "file":
            _check(str(Path(path).parent), _check_folder)
        else:
            raise SinkRefusedError(
                f"the table has files in an object store ({scheme}://), and the catalog's warehouse is not in it. Give "
                "the address warehouse=s3://bucket/prefix, or keep all of the table's files below the warehouse"
            )

    def files_below(self, folder: str) -> Iterator[tuple[str, datetime]]:
        """Locations of all files below a folder, and when each was written."""
        scheme, netloc, root = PyArrowFileIO.parse_location(folder)
        self.check(f"{folder}/any")
        system = self.fs_by_scheme(scheme, netloc)
        for found in system.get_file_info(FileSelector(root, allow_not_found=True, recursive=True)):
            if found.type == FileType.File:
                yield f"{folder}{found.path.removeprefix(root.lstrip('/') if scheme in _STORE else root)}", found.mtime


class _NeededFile(PyArrowFile):
    """A file that a table's metadata names, or that its catalog names as the metadata."""

    def open(self, seekable: bool = True) -> InputStream:
        """See InputFile. Raises LostFileError: the text of a store's library does not name the file."""
        try:
            return super().open(seekable)
        except FileNotFoundError as error:
            raise LostFileError(self.location) from error


@lru_cache(KEYS_MAX)
def listed_files(properties: tuple[tuple[str, str], ...]) -> ListedFiles:
    """Kept, because a client of an object store begins with an empty pool of connections."""
    return ListedFiles(dict(properties))


def same_file(location: str) -> tuple[str, str]:
    """What is equal for all spellings of a file's location, which another engine may have written."""
    scheme, _, path = PyArrowFileIO.parse_location(location)
    return ("s3" if scheme in _STORE else scheme), posixpath.normpath(path)


@lru_cache(_FOLDERS_MAX)
def _check(place: str, check: Callable[[str, str], None]) -> None:
    try:
        check(place, "the table's metadata")
    except NotPermittedError as error:
        raise SinkRefusedError(str(error)) from error


def _check_folder(folder: str, option: str) -> None:
    check_folder(Path(folder), option)
