"""The rows to copy from a table's source: the ``spec`` of a resync_table request."""

import hashlib
from typing import Final

import msgspec

__all__ = [
    "KEYS_MAX", "KEY_BYTES_MAX", "RowCopy", "is_by_ranges", "is_snapshot", "is_whole", "read_row_copy",
    "shown_row_copy", "snapshot_request",
]  # fmt: skip

KEYS_MAX: Final = 1_000
"""Keys in one request: one transaction at the sink, for which the table pauses."""

KEY_BYTES_MAX: Final = 256 * 1024
"""Bytes of all keys of one request, which is one record of at most a megabyte."""


class RowCopy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """Rows by their keys, as texts. ``columns``: the key's columns, empty for the sink's key in its order.

    ``keys`` is null for a copy by ranges of the key: of every row, or of those for which ``where`` is true, a condition
    on the source's columns (config/expressions.py). ``rows_per_second`` limits only that. ``delete``: rows that the
    source does not have are deleted at the sink; otherwise they are left alone.
    """

    keys: tuple[tuple[str, ...], ...] | None
    columns: tuple[str, ...] = ()
    delete: bool = False
    rows_per_second: int | None = None
    where: str | None = None


def read_row_copy(text: str | None) -> RowCopy | str:
    """The rows, or why ``text`` does not name any."""
    try:
        found = msgspec.json.decode(text or "", type=RowCopy)
    except msgspec.MsgspecError as error:
        return f"the rows to copy are not valid: {error}"
    return _why_not(found) or found


def _why_not(found: RowCopy) -> str | None:
    limit = found.rows_per_second
    if limit is not None and (found.keys is not None or limit < 1):
        return f"{limit} rows per second is not a valid limit: it must be at least 1, for a copy of a whole table"
    return _why_no_ranges(found) if found.keys is None else _why_no_rows(found, found.keys)


def _why_no_ranges(found: RowCopy) -> str | None:
    if found.where is not None and found.delete:
        return "only a copy of all rows can delete those that the source does not have. Leave out the condition"
    return "a whole table is copied by the sink's key. Name no columns" if found.columns else None


def _why_no_rows(found: RowCopy, keys: tuple[tuple[str, ...], ...]) -> str | None:
    if found.where is not None:
        return "rows are named by keys or by a condition, not by both"
    if not keys:
        return "no rows to copy were named"
    if len(keys) > KEYS_MAX:
        return f"{len(keys)} rows are more than one request may name ({KEYS_MAX}). Ask for fewer at a time"
    if found.columns and any(len(key) != len(found.columns) for key in keys):
        return f"each key must have {len(found.columns)} values, one for each of {', '.join(found.columns)}"
    return None


def is_by_ranges(text: str | None) -> bool:
    """Whether ``text`` asks for a copy in ranges of the key, which takes as long as the table is large."""
    found = read_row_copy(text)
    return isinstance(found, RowCopy) and found.keys is None


def is_whole(text: str | None) -> bool:
    """Whether ``text`` names every row of a table."""
    found = read_row_copy(text)
    return isinstance(found, RowCopy) and found.keys is None and found.where is None


def shown_row_copy(rows: RowCopy) -> str:
    """The text that a request has. The inverse of ``read_row_copy``."""
    return msgspec.json.encode(rows).decode()


_SNAPSHOT: Final = "snapshot."


def snapshot_request(feed_id: str, table: str) -> str:
    """The id of the request that a feed's owner makes for a table whose rows are copied when it joins the feed."""
    return f"{_SNAPSHOT}{feed_id}.{hashlib.sha256(table.encode()).hexdigest()[:16]}"


def is_snapshot(request: str) -> bool:
    """Whether an owner has made the request, with that id."""
    return request.startswith(_SNAPSHOT)
