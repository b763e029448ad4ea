"""A stream's id: 128 bits with its place on the ring and the index of its range.

From the highest bit: ``token`` (64 bits, signed), ``random`` (38), ``index`` of the range (22), ``version`` (4). An id
is kept and compared as 16 bytes, the highest first, without sign: so ids order as any store of bytes orders them.
``random`` keeps ids of different generations apart and has no other meaning. The layout is ScyllaDB's, version 1.
"""

from typing import Final, Self

import msgspec

VERSION: Final = 1
VERSION_BITS: Final = 4
INDEX_BITS: Final = 22
RANDOM_BITS: Final = 38
INDEX_MAX: Final = (1 << INDEX_BITS) - 1
RANDOM_MAX: Final = (1 << RANDOM_BITS) - 1
ID_BYTES: Final = 16

_TOKEN_MIN: Final = -(1 << 63)
_TOKEN_MAX: Final = (1 << 63) - 1
_LOW: Final = (1 << 64) - 1


class StreamIdError(ValueError):
    """An id that cannot be made of its parts, or bytes that are not an id of a known version."""


class StreamId(msgspec.Struct, frozen=True, order=True):
    """``raw``: the 16 bytes. Make one by ``pack`` or ``parse``, which check it."""

    raw: bytes

    @classmethod
    def pack(cls, token: int, random: int, index: int) -> Self:
        """The id of these parts. Raises StreamIdError for one that does not fit into its bits."""
        if not _TOKEN_MIN <= token <= _TOKEN_MAX:
            raise StreamIdError(f"a stream's token is a signed 64-bit number, not {token}")
        if not 0 <= index <= INDEX_MAX:
            raise StreamIdError(f"a generation has at most {INDEX_MAX + 1} ranges; the index {index} does not fit")
        if not 0 <= random <= RANDOM_MAX:
            raise StreamIdError(f"the random part has {RANDOM_BITS} bits; {random} does not fit")
        low = random << (INDEX_BITS + VERSION_BITS) | index << VERSION_BITS | VERSION
        return cls((((token & _LOW) << 64) | low).to_bytes(ID_BYTES, "big"))

    @classmethod
    def parse(cls, text: str | bytes) -> Self:
        """The id of 16 bytes, or of their 32 hexadecimal digits (with or without ``0x``). Raises StreamIdError."""
        if isinstance(text, str):
            digits = text.removeprefix("0x")
            if len(digits) != 2 * ID_BYTES or not all(digit in "0123456789abcdefABCDEF" for digit in digits):
                raise StreamIdError(f"a stream's id is {2 * ID_BYTES} hexadecimal digits, not {text[:80]!r}")
            raw = bytes.fromhex(digits)
        else:
            raw = text
        if len(raw) != ID_BYTES:
            raise StreamIdError(f"a stream's id has {ID_BYTES} bytes, not {len(raw)}")
        parsed = cls(raw)
        if parsed.version != VERSION:
            raise StreamIdError(
                f"the stream id {raw.hex()} has version {parsed.version}; only version {VERSION} is known here"
            )
        return parsed

    @property
    def token(self) -> int:
        """Where the stream lies on the ring."""
        return int.from_bytes(self.raw[:8], "big", signed=True)

    @property
    def random(self) -> int:
        """What keeps it apart from streams of the same place in other generations."""
        return self._low >> (INDEX_BITS + VERSION_BITS)

    @property
    def index(self) -> int:
        """The number of its range within its generation, from 0."""
        return self._low >> VERSION_BITS & INDEX_MAX

    @property
    def version(self) -> int:
        """Of the layout."""
        return self._low & (1 << VERSION_BITS) - 1

    @property
    def _low(self) -> int:
        return int.from_bytes(self.raw[8:], "big")

    def __str__(self) -> str:
        return self.raw.hex()
