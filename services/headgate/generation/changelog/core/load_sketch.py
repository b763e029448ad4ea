"""A writer's record of its own load: recent changes per stream, and a sample of their keys' tokens.

The changes of a stream are counted exactly. Of all changes a sample of fixed size is kept, in which each is as likely
as any other: a reservoir (J. S. Vitter, "Random sampling with a reservoir", 1985), filled by algorithm L, which draws a
random number per change that it keeps, not per change that it sees (K.-H. Li, "Reservoir-sampling algorithms of time
complexity O(n(1 + log(N/n)))", 1994). A stream has the share of the sample that it has of the load, so the
stream that has to be cut is the one that is known best.

How exact: with n changes of a stream in the sample, the share of its load below some token is wrong by more than
1.36 / sqrt(n) in one case of twenty (the inequality of Dvoretzky, Kiefer and Wolfowitz with Massart's constant). So by
256 changes of one stream, a cut that is meant to halve the load leaves 41 to 59 per cent on one side. A key with the
share p of the load is counted with a standard error of sqrt(p (1 - p) / n).
"""

import math
from collections import Counter
from collections.abc import Sequence
from typing import Final

from headgate.generation.changelog.core.outbox import Batch
from headgate.generation.core.ranges import LogMap
from headgate.generation.core.splitmix import Splitmix
from headgate.records.generation import KeyLoad, StreamLoad

SAMPLE_CHANGES: Final = 256
"""In a report: the error above, in 3 KB if each has another key; a stream that was written to takes 45 bytes more."""

_BELOW_ONE: Final = 1.0 - 2.0**-53


class LoadSketch:
    """The load since ``begin``; ``seed`` decides which changes are kept in the sample."""

    def __init__(self, seed: int) -> None:
        self._random = Splitmix(seed)
        self._by_partition: Counter[int] = Counter()
        self._sample: list[tuple[int, int]] = []
        self.begin(0.0)

    def begin(self, now: float) -> None:
        """Forget what was counted; ``now`` in seconds."""
        self._since = now
        self._seen = 0
        self._by_partition.clear()
        self._sample.clear()
        self._weight = 1.0
        self._next = SAMPLE_CHANGES - 1

    def count(self, batch: Batch) -> None:
        """Count changes that are on the log now."""
        changes = batch.changes
        self._by_partition.update(partition for _, partition in changes)
        at = 0
        while len(self._sample) < SAMPLE_CHANGES and at < len(changes):
            change, partition = changes[at]
            self._sample.append((change.token, partition))
            at += 1
            if len(self._sample) == SAMPLE_CHANGES:
                self._skip()
        while self._next < self._seen + len(changes):
            change, partition = changes[self._next - self._seen]
            self._sample[self._random.bits(32) % SAMPLE_CHANGES] = (change.token, partition)
            self._skip()
        self._seen += len(changes)

    def loads(self, log: LogMap, now: float) -> tuple[StreamLoad, ...]:
        """By stream of ``log``, by which all was written. Without a change: that its first stream had none."""
        seconds = now - self._since
        of_partition: dict[int, list[int]] = {}
        for token, partition in self._sample:
            of_partition.setdefault(partition, []).append(token)
        loads = tuple(
            StreamLoad(
                stream=str(stream.id),
                changes=self._by_partition[stream.partition],
                seconds=seconds,
                keys=_keys(of_partition.get(stream.partition, ())),
            )
            for stream in log.streams
            if self._by_partition[stream.partition]
        )
        return loads or (StreamLoad(str(log.streams[0].id), 0, seconds, ()),)

    def _skip(self) -> None:
        """Choose the next change that takes the place of one in the sample."""
        weight = self._weight * math.exp(math.log(self._random.fraction()) / SAMPLE_CHANGES)
        self._weight = min(weight, _BELOW_ONE)
        passed = math.floor(math.log(self._random.fraction()) / math.log1p(-self._weight))
        self._next += passed + 1


def _keys(tokens: Sequence[int]) -> tuple[KeyLoad, ...]:
    return tuple(KeyLoad(token, count) for token, count in sorted(Counter(tokens).items()))
