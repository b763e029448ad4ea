"""The one grammar of names, and their encoding in keys.

Feeds, agents, tables and spans are named by users. Names become parts of record keys, divided by ``/``, so that
any topic tool shows them; a character outside the grammar is percent-encoded (UTF-8, upper-case hex). ``~`` divides a
table from its partitions in the name of a part (spans.py) and is not encoded.
"""

import re
from typing import Final
from urllib.parse import quote, unquote

_NAME: Final = re.compile(r"[A-Za-z0-9._-]+\Z")
_PLAIN: Final = re.compile(r"[A-Za-z0-9._~/-]*\Z")
_SAFE: Final = "._-~"

NAME_LENGTH_MAX: Final = 200
"""Keys carry up to four names; a Kafka key beyond a kilobyte is unreadable in every tool."""

RESERVED_NAMES: Final = frozenset({"agent", "coordinator", "outcome", "request", "session"})
"""First words of keys that share a topic with feeds: a feed of that name could not be told apart."""


class InvalidNameError(ValueError):
    """A name that cannot be used; the message contains which, why, and what is allowed."""


def check_name(kind: str, name: str) -> str:
    """Return ``name`` if a user may give it to a ``kind`` ("feed", "agent"), else raise InvalidNameError."""
    if not _NAME.match(name) or len(name) > NAME_LENGTH_MAX:
        raise InvalidNameError(
            f"{kind} name {name!r} is not allowed: use 1 to {NAME_LENGTH_MAX} of the characters A-Z a-z 0-9 . _ -"
        )
    if name in RESERVED_NAMES:
        raise InvalidNameError(f"{kind} name {name!r} is reserved by Headgate's own keys: choose another")
    return name


def is_plain(key: str) -> bool:
    """Whether no part of a key's text is, or needs to be, encoded."""
    return _PLAIN.match(key) is not None


def encode_part(text: str) -> str:
    """One part of a key: characters outside the grammar percent-encoded, so that ``/`` always divides parts."""
    return quote(text, safe=_SAFE)


def decode_part(part: str) -> str:
    """The inverse of encode_part."""
    return unquote(part, errors="strict")
