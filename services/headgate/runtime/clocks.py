"""The clock by which a process measures the silence of others."""

import time
from typing import Final

_CLOCK: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Linux has CLOCK_BOOTTIME. Elsewhere the monotonic clock is the best one available."""


def elapsed_seconds() -> float:
    """Seconds since an arbitrary moment, including the time in which this machine was suspended.

    ``time.monotonic`` stops while a laptop sleeps or a virtual machine is suspended. A process that uses it to check
    whether its lease, or what it last heard, is still valid would trust an hour-old state when the machine wakes up.
    """
    return time.clock_gettime(_CLOCK)
