"""Addresses of folders with Delta tables: ``file:///folder``, or ``s3://bucket/prefix`` in an object store."""

import posixpath
import re
from pathlib import Path
from typing import Final

from headgate.databases import buckets
from headgate.databases.address import SINK, Address
from headgate.databases.errors import DatabaseRefusedError
from headgate.sinks.contract import SinkRefusedError

__all__ = ["SCHEMES", "address_of"]

SCHEME: Final = "file://"
SCHEMES: Final = (SCHEME, buckets.SCHEME)
"""How an address of this kind begins."""

FORM: Final = f"{SCHEME}/folder"

_PLAIN: Final = re.compile(r"(?:/[A-Za-z0-9._ -]+)+/?")


def address_of(dsn: str) -> Address:
    """The address, taken apart. Raises SinkRefusedError, which does not quote it: it may hold a password."""
    if buckets.is_store(dsn):
        try:
            place = buckets.place_in_store(dsn, SINK.address)
        except DatabaseRefusedError as error:
            raise SinkRefusedError(str(error)) from error
        return Address(place, (), buckets=(place,))
    path = dsn.removeprefix(SCHEME)
    is_valid = dsn.startswith(SCHEME) and _PLAIN.fullmatch(path) is not None
    if not is_valid or {".", ".."} & set(path.split("/")):
        raise SinkRefusedError(
            f"{SINK.address} is not the address of a folder. Write it as {FORM}, an absolute path of letters, digits, "
            f"spaces, points, hyphens and underscores, without . and .. as names, or as {buckets.FORM}"
        )
    folder = posixpath.normpath(path)
    return Address(f"{SCHEME}{folder}", (), server=folder, folders=(Path(folder),))
