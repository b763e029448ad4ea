"""One owner's memory for one term: intentions that are in no record and in no digest."""

from dataclasses import dataclass, field
from typing import Any

import msgspec

from headgate.generation.core.ranges import Recut
from headgate.generation.core.stream_id import StreamId
from headgate.generation.core.topology import Topology
from headgate.records.timestamps import DescriptionKey, StreamsKey


class Proposal(msgspec.Struct, frozen=True):
    """What autoscaling wants to change of generation ``epoch``."""

    epoch: int
    changes: tuple[Recut, ...]


@dataclass(slots=True)
class AutomaticMemory:
    """What autoscaling remembers of one set in this term; times are monotonic seconds.

    ``heard``: writer → its life, and when that last reported its load. ``committed``: epoch → when. ``wanted``: streams
    that the look before wanted to split (True) or to merge. ``proposal`` waits for a look at the topic.
    """

    heard: dict[str, tuple[int, float]] = field(default_factory=dict)
    committed: dict[int, float] = field(default_factory=dict)
    rests_until: float = float("-inf")
    wanted: frozenset[tuple[StreamId, bool]] = frozenset()
    proposal: Proposal | None = None


@dataclass(slots=True)
class GenerationTerm:
    """One owner's memory: effects that are under way, by what they are about; and of autoscaling, by set.

    ``failures``: why effects failed at their last try, by what they are about, until one succeeds. ``waiting``: since
    when (monotonic seconds) writers are waited for, by (kind of timer, set, epoch). ``topologies``:
    of generations that are being published, by (set, timestamp); ``wrong``: rows to write again.
    """

    owner_rev: int
    began: float
    running: set[tuple[Any, ...]] = field(default_factory=set)
    failures: dict[tuple[Any, ...], str] = field(default_factory=dict)
    waiting: dict[tuple[str, str, int], float] = field(default_factory=dict)
    automatic: dict[str, AutomaticMemory] = field(default_factory=dict)
    topologies: dict[tuple[str, int], Topology] = field(default_factory=dict)
    wrong: set[DescriptionKey | StreamsKey] = field(default_factory=set)
