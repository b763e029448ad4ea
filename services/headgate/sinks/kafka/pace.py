"""How large transactions are: as large as the target cluster can take in time."""

from typing import Final

from headgate.sinks.kafka.parts import PART_BYTES

__all__ = ["TransactionPace"]

BYTES_MAX: Final = 32 << 20
"""More per transaction saves nothing: one costs some 10 ms."""

SECONDS: Final = 2.5
"""How long one should take: a third of what it may (eventlog/transactions.py), since the next one may be slower."""

SHRINK: Final = 4
"""After one that was not over in time, its successor is so much smaller: three failures lead to the least."""


class TransactionPace:
    """Of one target cluster. Used under ``Target.mutex``."""

    def __init__(self) -> None:
        self.bytes_max = BYTES_MAX
        """Of the next transaction."""

    def took(self, size: int, seconds: float) -> None:
        """A transaction of ``size`` bytes was committed."""
        if seconds > SECONDS:
            self.bytes_max = max(PART_BYTES, min(self.bytes_max, int(size * SECONDS / seconds)))
        elif 2 * seconds < SECONDS and 2 * size >= self.bytes_max:
            self.bytes_max = min(BYTES_MAX, 2 * self.bytes_max)

    def failed(self) -> None:
        """A transaction was not committed, perhaps because it was too large."""
        self.bytes_max = max(PART_BYTES, self.bytes_max // SHRINK)
