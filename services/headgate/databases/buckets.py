"""Places in object stores: ``s3://bucket/prefix``."""

import re
from typing import Final

from headgate.databases.errors import DatabaseRefusedError

__all__ = ["FORM", "SCHEME", "bucket_of", "is_store", "place_in_store"]

SCHEME: Final = "s3://"
FORM: Final = f"{SCHEME}bucket/prefix"

_STORES: Final = re.compile(r"(?:s3[an]?|gs|gcs|abfss?|wasbs?|az|adl|oss|hdfs)://", re.IGNORECASE)
_PLACE: Final = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9](?:/[A-Za-z0-9._-]+)*/?")
"""Names of buckets as AWS permits them, then names of folders as Headgate permits them locally, without spaces."""


def is_store(text: str) -> bool:
    """Whether it names an object store, even if Headgate does not write to it."""
    return _STORES.match(text) is not None


def place_in_store(text: str, option: str) -> str:
    """The place in its one spelling. Raises DatabaseRefusedError, which does not quote it: it may hold a password.

    ``option`` is where it was given.
    """
    if not text.startswith(SCHEME):
        raise DatabaseRefusedError(
            f"{option} names an object store that Headgate does not write to: it writes to local and mounted folders, "
            f"and to stores that speak S3's protocol. Write such a place as {FORM}"
        )
    path = text.removeprefix(SCHEME)
    if _PLACE.fullmatch(path) is None or {".", ".."} & set(path.split("/")):
        raise DatabaseRefusedError(
            f"{option} is not a place in an object store. Write it as {FORM}, with names of letters, digits, "
            "points, hyphens and underscores, without . and .. as names"
        )
    return SCHEME + path.rstrip("/")


def bucket_of(place: str) -> tuple[str, str]:
    """The bucket and the prefix, which may be empty, of a place in its one spelling."""
    bucket, _, prefix = place.removeprefix(SCHEME).partition("/")
    return bucket, prefix
