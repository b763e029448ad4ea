"""Addresses of folders with Delta tables: ``file:///folder``."""

import posixpath
import re
from pathlib import Path
from typing import Final

from headgate.databases.address import SINK, Address
from headgate.sinks.contract import SinkRefusedError

__all__ = ["SCHEME", "address_of", "folder_of"]

SCHEME: Final = "file://"
FORM: Final = f"{SCHEME}/folder"

_OBJECT_STORE: Final = re.compile(r"(?:s3a?|gs|abfss?|az|adl|hdfs)://")
_PLAIN: Final = re.compile(r"(?:/[A-Za-z0-9._ -]+)+/?")


def address_of(dsn: str) -> Address:
    """The address, taken apart. Raises SinkRefusedError, which does not quote it: it may hold a password."""
    if _OBJECT_STORE.match(dsn):
        raise SinkRefusedError(
            f"{SINK.address} names an object store. Sinks of type delta write to local and mounted folders only. Write "
            f"it as {FORM}"
        )
    path = dsn.removeprefix(SCHEME)
    is_valid = dsn.startswith(SCHEME) and _PLAIN.fullmatch(path) is not None
    if not is_valid or {".", ".."} & set(path.split("/")):
        raise SinkRefusedError(
            f"{SINK.address} is not the address of a folder. Write it as {FORM}, an absolute path of letters, digits, "
            "spaces, points, hyphens and underscores, without . and .. as names"
        )
    folder = posixpath.normpath(path)
    return Address(f"{SCHEME}{folder}", (), server=folder, folders=(Path(folder),))


def folder_of(dsn: str) -> Path:
    """The folder that all tables are below."""
    return Path(address_of(dsn).server)
