"""Tokens: the place of a key on the ring, the shard that owns it, and a shard's first token in a range.

A token is a signed 64-bit number. ``MIN_TOKEN`` lies before all keys and ``MAX_TOKEN`` behind all of them; no key has
either. Shards own tokens in turns ("biased-token-round-robin"): the ring is cut into 2 ** ignore_msb equal pieces, and
each piece is divided evenly among all shards. So a range of the ring, however small, tends to have tokens of every
shard.

The partitioner and the rules are those of ScyllaDB (``docs/dev/cdc.md`` and its documentation of token sharding), so a
stream's token means the same here and there.
"""

from typing import Final

import msgspec

MIN_TOKEN: Final = -(1 << 63)
"""Before all keys."""

MAX_TOKEN: Final = 1 << 63
"""Behind all keys: one more than the largest token of a key, so that plain comparison is right."""

SHARDS_MAX: Final = 1 << 12
"""More shards than any node has; a larger number is a mistake."""

IGNORE_MSB_MAX: Final = 63
"""At least one bit must be left to distinguish shards."""

_RING: Final = 1 << 64
_MASK: Final = _RING - 1
_C1: Final = 0x87C37B91114253D5
_C2: Final = 0x4CF5AD432745937F


class ShardingError(ValueError):
    """A number of shards, or of ignored bits, that no node can have; or a shard that the node does not have."""


def token_of_key(key: bytes) -> int:
    """The token of a partition key: the first half of Murmur3 (x64, 128 bits), as Cassandra computes it.

    Cassandra's variant takes the bytes behind the last block of 16 as signed numbers, which the common one does not. A
    hash that is the smallest number is moved to the largest, because no key has ``MIN_TOKEN``.
    """
    h1 = h2 = 0
    body = len(key) & ~15
    for at in range(0, body, 16):
        k1 = int.from_bytes(key[at : at + 8], "little")
        k2 = int.from_bytes(key[at + 8 : at + 16], "little")
        h1 ^= _mix_first(k1)
        h1 = (((_rotate(h1, 27) + h2) & _MASK) * 5 + 0x52DCE729) & _MASK
        h2 ^= _mix_second(k2)
        h2 = (((_rotate(h2, 31) + h1) & _MASK) * 5 + 0x38495AB5) & _MASK
    tail = key[body:]
    if len(tail) > 8:
        h2 ^= _mix_second(_signed_sum(tail[8:]))
    if tail:
        h1 ^= _mix_first(_signed_sum(tail[:8]))
    h1 ^= len(key)
    h2 ^= len(key)
    h1 = (h1 + h2) & _MASK
    h2 = (h2 + h1) & _MASK
    token = (_finish(h1) + _finish(h2)) & _MASK
    token -= _RING if token >> 63 else 0
    return (1 << 63) - 1 if token == MIN_TOKEN else token


class Sharding(msgspec.Struct, frozen=True):
    """How a node divides tokens among its ``shards``; the first ``ignore_msb`` bits of a token do not matter.

    Raises ShardingError when it is checked (``checked``), not when it is made.
    """

    shards: int
    ignore_msb: int = 12

    def checked(self) -> "Sharding":
        """Itself, if a node can be so. Raises ShardingError."""
        if not 1 <= self.shards <= SHARDS_MAX:
            raise ShardingError(f"a node has 1 to {SHARDS_MAX} shards, not {self.shards}")
        if not 0 <= self.ignore_msb <= IGNORE_MSB_MAX:
            raise ShardingError(f"0 to {IGNORE_MSB_MAX} bits of a token can be ignored, not {self.ignore_msb}")
        return self

    def shard_of(self, token: int) -> int:
        """The shard that owns a token; ``MIN_TOKEN`` is the first shard's, ``MAX_TOKEN`` the last one's."""
        if token >= MAX_TOKEN:
            return self.shards - 1
        return self._shard_at(token - MIN_TOKEN)

    def token_for_next_shard(self, token: int, shard: int, spans: int = 1) -> int:
        """The first token behind ``token`` that begins ``shard``'s part; its ``spans``-th, if more are asked for.

        ``MAX_TOKEN`` if there is none. Raises ShardingError for a shard that the node does not have.
        """
        if not 0 <= shard < self.shards:
            raise ShardingError(f"a node with {self.shards} shards has no shard {shard}")
        if token >= MAX_TOKEN:
            return MAX_TOKEN
        position = token - MIN_TOKEN
        current = self._shard_at(position)
        if self.ignore_msb == 0:
            if spans > 1 or shard <= current:
                return MAX_TOKEN
            return self._start_of(shard) + MIN_TOKEN
        piece = (position >> (64 - self.ignore_msb)) + spans - (1 if shard > current else 0)
        if piece >> self.ignore_msb:
            return MAX_TOKEN
        return (piece << (64 - self.ignore_msb) | self._start_of(shard)) + MIN_TOKEN

    def _shard_at(self, position: int) -> int:
        return (((position << self.ignore_msb) & _MASK) * self.shards) >> 64

    def _start_of(self, shard: int) -> int:
        """The first position of the first piece that is ``shard``'s; division rounds down, so it may be a few ahead."""
        position = ((shard << 64) // self.shards) >> self.ignore_msb
        while self._shard_at(position) != shard:
            position += 1
        return position


def first_token_of_shard(sharding: Sharding, start: int, end: int, shard: int) -> int:
    """The first token in the range (start, end] that ``shard`` owns; ``end`` if it owns none there.

    A range whose start is not below its end goes round the end of the ring.
    """
    if start < end:
        return min(_next_owned(sharding, start, shard), end)
    found = _next_owned(sharding, start, shard)
    if found < MAX_TOKEN:
        return found
    return min(_next_owned(sharding, MIN_TOKEN, shard), end)


def _next_owned(sharding: Sharding, token: int, shard: int) -> int:
    first = token + 1
    return first if sharding.shard_of(first) == shard else sharding.token_for_next_shard(first, shard)


def _rotate(value: int, bits: int) -> int:
    return ((value << bits) | (value >> (64 - bits))) & _MASK


def _mix_first(value: int) -> int:
    return (_rotate((value * _C1) & _MASK, 31) * _C2) & _MASK


def _mix_second(value: int) -> int:
    return (_rotate((value * _C2) & _MASK, 33) * _C1) & _MASK


def _signed_sum(tail: bytes) -> int:
    """Up to eight bytes, the lowest first, each with its sign extended before they are combined by exclusive or."""
    value = 0
    for number, byte in enumerate(tail):
        value ^= (byte - 256 if byte > 127 else byte) << (8 * number)
    return value & _MASK


def _finish(value: int) -> int:
    value ^= value >> 33
    value = (value * 0xFF51AFD7ED558CCD) & _MASK
    value ^= value >> 33
    value = (value * 0xC4CEB9FE1A85EC53) & _MASK
    return value ^ (value >> 33)
