"""The base types of all records and keys on the control topics; each service's own are in the other modules."""

from typing import ClassVar

import msgspec

from headgate.records.names import encode_part, is_plain

Record = msgspec.Struct
"""A frozen struct: a past-tense fact and a whole state, never a delta. registry.py lists which structs are records."""


class MalformedKeyError(ValueError):
    """A key that has none of the forms that its topic has."""


class Key(msgspec.Struct, frozen=True, order=True):
    """The subject of a record. A subclass defines its topic, its text form, the record it takes, and who may write it.

    As text a key is its ``prefix``, its first field, its ``infix`` and its other fields, with ``/`` between them.
    """

    topic: ClassVar[str]
    prefix: ClassVar[tuple[str, ...]] = ()
    infix: ClassVar[tuple[str, ...]] = ()
    record: ClassVar[type]
    by_owner: ClassVar[bool] = False
    names_owner: ClassVar[bool] = False
    """Whether an owner of a shard announces itself under it."""

    def text(self) -> str:
        """The key as it is stored on the topic."""
        first, *rest = map(str, msgspec.structs.astuple(self))
        parts = [*self.prefix, first, *self.infix, *rest]
        text = "/".join(parts)
        # Names within the grammar are stored unchanged; one check of the whole text covers every record written.
        if text.count("/") == len(parts) - 1 and is_plain(text):
            return text
        return "/".join(map(encode_part, parts))


class Fact(msgspec.Struct, frozen=True):
    """A key with its new value; ``None`` deletes the key (a tombstone)."""

    key: Key
    value: Record | None
