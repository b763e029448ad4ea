"""Two streams of rows, both in the order of the key, merged: which rows differ, and in which columns."""

import hashlib
from collections.abc import Iterator

import msgspec

from headgate.verify.columns import ComparedColumns
from headgate.verify.contract import Key, Row
from headgate.verify.forms import Forms

__all__ = ["DigestDifference", "finding_of", "merged"]


class DigestDifference(msgspec.Struct, frozen=True):
    """A row that differs: ``missing`` (not in the target), ``surplus`` (only there), or ``differs`` in ``places``.

    ``digest`` is of both rows: two findings are the same if nothing has changed on either side.
    """

    kind: str
    places: tuple[int, ...]
    digest: bytes


def finding_of(columns: ComparedColumns, here: Row | None, there: Row | None) -> DigestDifference | None:
    """How two rows of one key differ; None if they are equal by value."""
    if here == there and not columns.has_other_texts:
        return None
    if here is None or there is None:
        return DigestDifference("surplus" if here is None else "missing", (), _digest(here, there))
    places = tuple(
        place
        for place, (forms, one, other) in enumerate(zip(columns.forms, here, there, strict=True))
        if _is_other(forms, one, other)
    )
    return DigestDifference("differs", places, _digest(here, there)) if places else None


def _is_other(forms: Forms | None, one: str | None, other: str | None) -> bool:
    """Whether two texts, the source's first, are of different values."""
    if forms is None or one is None or other is None:
        return one != other
    ours, theirs = forms
    return (one != other or ours is not theirs) and bool(ours(one) != theirs(other))


def _digest(here: Row | None, there: Row | None) -> bytes:
    return hashlib.blake2b(repr((here, there)).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def merged(left: Iterator[Row], right: Iterator[Row], key_length: int) -> Iterator[tuple[Key, Row | None, Row | None]]:
    """(key, row here, row there) for every key on either side; both sides come in the order of the key."""
    here, there = next(left, None), next(right, None)
    while here is not None or there is not None:
        keys = [tuple(part or "" for part in row[:key_length]) for row in (here, there) if row is not None]
        key = min(keys)
        in_here, in_there = here is not None and keys[0] == key, there is not None and keys[-1] == key
        yield key, here if in_here else None, there if in_there else None
        here = next(left, None) if in_here else here
        there = next(right, None) if in_there else there
