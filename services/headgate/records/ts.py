"""A ts: 64 bit, physical milliseconds since 1970 << 18 | logical, as in TiCDC."""

from typing import Final

LOGICAL_BITS: Final = 18

TS_MAX: Final = 2**63 - 1
"""The greatest ts: it is a signed 64-bit number everywhere."""

MS_MAX: Final = TS_MAX >> LOGICAL_BITS
"""The last millisecond that a ts has, in the year 3084: what lies beyond is microseconds or nanoseconds by mistake."""


def ts_of_ms(physical: int) -> int:
    """The first ts of a millisecond."""
    return physical << LOGICAL_BITS


def physical_ms(ts: int) -> int:
    """The millisecond since 1970 that a ts lies in."""
    return ts >> LOGICAL_BITS
