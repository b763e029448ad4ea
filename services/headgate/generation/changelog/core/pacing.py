"""The size of a writer's next transaction, from the duration of the last ones.

A transaction holds up every reader of its partitions until it ends, so it gets a few seconds only. On a slow link a
batch of the usual size does not fit into them, and the same batch would fail every time. So after a batch that timed
out the next one has a quarter of its changes, down to a single one. If even that does not fit, the transaction gets
more time. Both recover step by step when batches are written quickly again.

A batch that Kafka refuses because of one of its changes is halved, so that all before that change is written and the
change can be named.
"""

from typing import Final

from headgate.generation.changelog.core.outbox import Batch

BATCH_CHANGES: Final = 1_000
"""Changes in one transaction. With far more, its readers wait; with far fewer, its fixed cost dominates."""

BATCH_BYTES: Final = 4 * 1024 * 1024
"""Bytes in one transaction: within COMMIT_SECONDS at 1 MB/s, and several times what 1 000 usual changes have."""

COMMIT_SECONDS: Final = 4.0
"""One batch's transaction takes some 10 ms on a local network."""

COMMIT_SECONDS_MAX: Final = 32.0
"""The longest that one change may take, and readers may wait for it: 16 MiB at half a megabyte per second."""

QUICK: Final = 0.25
"""A full batch that took this part of its time or less: the next one may be twice as large."""

SHRINK: Final = 4
"""Each time-out costs a new incarnation, some ten seconds on a slow link. So the right size is found in few steps, even
if they go too far."""


class BatchPace:
    """The limits of the next batch: ``changes``, ``size_bytes`` and ``seconds`` for its transaction."""

    def __init__(self, changes: int = BATCH_CHANGES, size_bytes: int = BATCH_BYTES) -> None:
        self._changes_max, self._size_bytes_max = changes, size_bytes
        self.changes, self.size_bytes, self.seconds = changes, size_bytes, COMMIT_SECONDS

    def committed(self, batch: Batch, seconds: float) -> None:
        """A batch was written, and took so long."""
        if seconds > QUICK * self.seconds:
            return
        self.seconds = max(COMMIT_SECONDS, self.seconds / 2)
        if 2 * len(batch.changes) > self.changes or 2 * batch.size_bytes > self.size_bytes:
            self.changes = min(self._changes_max, 2 * self.changes)
            self.size_bytes = min(self._size_bytes_max, 2 * self.size_bytes)

    def timed_out(self, batch: Batch) -> None:
        """A batch was not written in its time."""
        if len(batch.changes) == 1:
            self.seconds = min(COMMIT_SECONDS_MAX, 2 * self.seconds)
        self.changes = max(1, len(batch.changes) // SHRINK)
        self.size_bytes = max(1, batch.size_bytes // SHRINK)

    def refused(self, batch: Batch) -> None:
        """A batch was refused as a whole because of one of its changes. Halving it finds out which."""
        self.changes = max(1, len(batch.changes) // 2)
