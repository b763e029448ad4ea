"""The differences between kinds of owners: everything that the role loop must know about a service.

A kind brings its topics, its two keys on announce, and, where its owner watches other processes (a coordinator watches
sessions), a function that reads signs of life off the log. Its machine is passed to the role separately.
"""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

import msgspec

from headgate.records.base import Key, Record

Holder = tuple[str, ...]
"""Name of a process that an owner watches, in the form that its kind defines."""


class Sign(Enum):
    """What a record shows about a holder."""

    HEARD = "heard"
    LEFT = "left"
    """Its announcement was deleted: it is no longer watched."""
    ENDED = "ended"
    """The owner has declared it dead. This is final: what it reports from now on is not a sign of life."""
    FORGOTTEN = "forgotten"
    """The record of its end was deleted, and with it every reason to remember it."""


class SignOfLife(msgspec.Struct, frozen=True):
    """One sign; ``lease_seconds`` as announced by the holder, if it was; ``farewell`` ends without a failure."""

    holder: Holder
    sign: Sign
    lease_seconds: float | None = None
    farewell: bool = False


def no_holders(_key: Key, _value: Record | None) -> SignOfLife | None:
    """For a kind whose owner does not watch any holder."""
    return None


class OwnerKind(msgspec.Struct, frozen=True, kw_only=True):
    """One kind of owner.

    ``name`` is used in transactional ids, probes and logs. ``topics`` are those that a role reads besides announce, one
    partition of each per shard; keys of them with ``by_owner`` are written by the shard's owner alone. ``owner_key``
    takes a shard, ``member_key`` a process id. ``harmless`` has for each topic that the owner writes a key that names
    nothing, which may be deleted at any time.
    """

    name: str
    topics: tuple[str, ...]
    owner_key: Any
    member_key: Any
    harmless: Mapping[str, Key]
    sign: Callable[[Key, Record | None], SignOfLife | None] = no_holders
