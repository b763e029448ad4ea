"""Addresses of SQL catalogs: ``sqlite:////folder/catalog.db?catalog=name&warehouse=/folder``."""

import posixpath
import re
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl, urlsplit

import msgspec

from headgate.config.wording import nearest
from headgate.databases.address import SINK, Address
from headgate.sinks.contract import SinkRefusedError

__all__ = ["SCHEME", "Place", "address_of", "place_of"]

SCHEME: Final = "sqlite://"
FORM: Final = f"{SCHEME}//folder/catalog.db"
CATALOG: Final = "default"
"""pyiceberg's name for a catalog that has none."""

_OPTIONS: Final = ("catalog", "warehouse")
_PATH: Final = re.compile(r"(?:/[A-Za-z0-9._ -]+)+")
_NAME: Final = re.compile(r"[A-Za-z0-9_.-]{1,255}")


class Place(msgspec.Struct, frozen=True):
    """A catalog: its file, its name among the catalogs of that file, and where Headgate puts ledgers."""

    file: Path
    catalog: str
    warehouse: Path


def place_of(dsn: str) -> Place:
    """The address, taken apart. Raises SinkRefusedError, which does not quote it: it may hold a password."""
    if not dsn.startswith(SCHEME):
        raise SinkRefusedError(
            f"{SINK.address} is not the address of an Iceberg catalog that Headgate can use: only SQL catalogs in a "
            f"SQLite file are supported. Write it as {FORM}"
        )
    parts = urlsplit(dsn)
    if parts.netloc or not parts.path.startswith("//"):
        raise SinkRefusedError(
            f"{SINK.address} does not name a file by its absolute path. Write it with four slashes, as {FORM}"
        )
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    for name in options:
        if name not in _OPTIONS:
            near = nearest(name, _OPTIONS)
            raise SinkRefusedError(
                f"{SINK.address} has an option that is not known{f', did you mean {near}?' if near else '.'} Choose "
                f"from {' and '.join(_OPTIONS)}"
            )
    file = _path(parts.path[1:], SINK.address)
    name = options.get("catalog", CATALOG)
    if not _NAME.fullmatch(name):
        raise SinkRefusedError(
            f"{SINK.address}: catalog must be a name of letters, digits, underscores, points and hyphens"
        )
    warehouse = options.get("warehouse")
    return Place(file, name, file.parent if warehouse is None else _path(warehouse, f"{SINK.address}: warehouse"))


def _path(text: str, option: str) -> Path:
    if _PATH.fullmatch(text.rstrip("/")) is None or {".", ".."} & set(text.split("/")):
        raise SinkRefusedError(
            f"{option} is not an absolute path of letters, digits, spaces, points, hyphens and underscores, without . "
            f"and .. as names. Write the address as {FORM}"
        )
    return Path(posixpath.normpath(text))


def address_of(dsn: str) -> Address:
    """See SinkPlug."""
    place = place_of(dsn)
    options = f"?catalog={place.catalog}&warehouse={place.warehouse}"
    return Address(f"{SCHEME}/{place.file}{options}", (), server=str(place.file), folder=place.file.parent)
