"""A role before it serves: it tails its topics, decides when to stand for election, and replays after it is elected.

A Candidate is one incarnation of a role, starting from an empty state. If anything goes wrong, the role drops it and
creates another. All records that it reads go through ``evolve``, whichever process wrote them, so a standby's state is
always the log's and a take-over only has to read the last few records.
"""

import logging
import math
from collections import deque
from collections.abc import Collection, Mapping
from typing import Final, Generic, TypeVar

from headgate.eventlog.log import Delivery, FencedError, Garbage, Log, Partition, Placed, TransactionalWriter
from headgate.eventlog.replay import HANGING_AGAIN_SECONDS, HANGING_SECONDS
from headgate.records.base import Fact
from headgate.records.control import OwnerAnnounced
from headgate.runtime.leases import HolderLeases, OwnerWatch
from headgate.runtime.levels import Readership
from headgate.runtime.machine import Machine, Now
from headgate.runtime.roster import Roster
from headgate.runtime.settings import ANNOUNCE, HEARTBEATS_PER_LEASE, RoleCounters, RoleSettings

__all__ = ["CAMPAIGN_STALL_SECONDS_MAX", "Candidate"]

_log = logging.getLogger(__name__)

StateT = TypeVar("StateT")

TURN_RECORDS_MAX: Final = 1_000
"""Records per turn: at 100 µs each a turn stays a tenth of a second, far below any lease."""

HIDDEN_HEARTBEATS_MIN: Final = 2
"""Announcements behind an open transaction that prove that their owner is alive: one that is killed during a
transaction leaves one, that of the transaction."""

CAMPAIGN_STALL_SECONDS_MAX: Final = 90.0
"""How long the replay of a campaign may make no progress: longer than every transaction time-out (Kafka's default is
60 s), after which no open transaction of any producer can hide records any more. Giving up ends the process's role, so
it waits longer than a command that only reads (replay.READ_STALL_SECONDS_MAX)."""


class Candidate(Generic[StateT]):
    """State, reader and what is known of others. ``writer`` exists from the campaign on."""

    def __init__(
        self, settings: RoleSettings, machine: Machine[StateT], log: Log, counters: RoleCounters, now: float
    ) -> None:
        """Start from the beginning of the log, up to its present end. Raises LogError."""
        self._settings = settings
        self._machine = machine
        self._log = log
        self._counters = counters
        self.state = machine.new_state(settings.shard)
        self.leases = HolderLeases(settings.holder_lease_seconds)
        self.watch = OwnerWatch(settings.lease_seconds, now)
        self.roster = Roster(settings.kind, settings.owner_id, settings.shard, settings.lease_seconds)
        self.readership = Readership(log.level, settings.lease_seconds)
        self.inbox: deque[Delivery] = deque()
        self.replayed = False
        self.writer: TransactionalWriter | None = None
        self._seen: dict[Partition, int] = {}
        self._moved_at = now
        self._suspected_at: float | None = None
        self._free_at: float | None = None
        self._writes_on: bool | None = None
        self._asked_at = -math.inf
        self._ends: Mapping[Partition, int] = log.end_offsets(settings.partitions())
        self._reader = log.reader(dict.fromkeys(settings.partitions(), 0), lease_seconds=settings.lease_seconds)

    def fetch(self, timeout_seconds: float) -> None:
        """Fill the empty inbox from the log, waiting for the first record. Raises LogError."""
        if self.inbox:
            return
        for item in self._reader.poll(TURN_RECORDS_MAX, timeout_seconds):
            self._counters.records += 1
            if isinstance(item, Garbage):
                topic = item.partition.topic
                self._counters.garbage[topic] = self._counters.garbage.get(topic, 0) + 1
                _log.warning("%s/%d at %d is skipped: %s", topic, item.partition.number, item.offset, item.reason)
            else:
                self.inbox.append(item)

    def follow(self, now: Now) -> bool:
        """Evolve all of the inbox. Return whether it contained anything."""
        moved = bool(self.inbox)
        while self.inbox:
            self._learn(self.inbox.popleft(), now)
        # Only what is short of the end counts: heartbeats keep one partition moving while another is stuck.
        behind = self._behind()
        if behind != self._seen:
            self._seen, self._moved_at = behind, now.monotonic
        self.replayed = self.replayed or (self.writer is None and self.is_at_end())
        return moved

    def is_time_to_campaign(self, now: float) -> bool:
        """The shard is free, and those that should have it before this process (roster.py) have had their time.

        A shard is free if it has no owner, or one that was silent for its lease by everything on the log then. The end
        may be hidden by a transaction that a killed owner left open, which only ``init`` ends. So a doubt that lasts
        for a heartbeat's time is enough; an unnecessary campaign costs a term, never safety. Such a transaction on
        announce also hides the heartbeats of other shards' owners, which are alive: so an owner that continues to write
        behind it gets a lease longer. The others' time starts when they could campaign.
        """
        is_vacant = self.replayed and self.watch.is_vacant()
        if not is_vacant and now < self.watch.runs_out_at():
            self._suspected_at = self._free_at = None
            return False
        if self._suspected_at is None:
            self._suspected_at, self._writes_on = now, None
            if not is_vacant:
                self._ends = self._log.end_offsets(self._settings.partitions())
        if not (is_vacant or self.is_at_end()) and self._is_in_doubt(now - max(self._suspected_at, self._moved_at)):
            return False
        if self._free_at is None:
            self._free_at = now
        return now - self._free_at >= self.roster.wait_seconds(now)

    def _is_in_doubt(self, hidden_seconds: float) -> bool:
        """Whether to wait for an owner silent behind a hidden end; checks the log once. Raises LogError."""
        if hidden_seconds < self._settings.lease_seconds / HEARTBEATS_PER_LEASE:
            return True
        if self._writes_on is None:
            keys = self._log.hidden_keys(ANNOUNCE, self._reader.positions()[ANNOUNCE])
            self._writes_on = keys.count(self._settings.owner_key) >= HIDDEN_HEARTBEATS_MIN
        return self._writes_on and hidden_seconds < self._settings.lease_seconds

    def is_waiting_for_end(self) -> bool:
        """Whether it is reading towards an end of the log, or lets others campaign first."""
        return not self.replayed or self._suspected_at is not None

    def campaign(self, now: float) -> None:
        """Fence the last owner, end its dangling transaction, and replay to the end captured after that."""
        self.writer = self._log.transactional_writer(self._settings.transactional_id)
        self.writer.init()
        self._ends = self._log.end_offsets(self._settings.partitions())
        self._moved_at = now
        self.replayed = False

    def serve(self) -> None:
        """Start the term: an owner does not read back its own records, except for announcements of a later owner."""
        mine = self._settings.owner_key
        self._reader.pass_over(lambda key: self._settings.is_mine(key) and key != mine)

    def positions(self) -> Mapping[Partition, int]:
        """How far the log was read, the inbox included."""
        return self._reader.positions()

    @property
    def blind(self) -> str | None:
        """Why records may be missing from what was read, None if none are."""
        return self._reader.stopped

    def is_at_end(self) -> bool:
        """Whether all was read up to the end captured last."""
        return not self._behind()

    def end_hanging(self, now: float) -> None:
        """When a campaign makes no progress, end what ``init`` should have ended. Raises LogError."""
        if (
            self.writer is None
            or now - self._moved_at <= HANGING_SECONDS
            or now - self._asked_at < HANGING_AGAIN_SECONDS
        ):
            return
        self._asked_at = now
        harmless = self._settings.kind.harmless
        hidden = [partition for partition in sorted(self._behind()) if partition.topic in harmless]
        if not hidden:
            return
        places = self._places(hidden)
        if self.writer.end_hanging([Placed(partition, Fact(harmless[partition.topic], None)) for partition in hidden]):
            _log.warning("a transaction whose end a broker has lost (docs/bugs.md, B20) is ended: %s", places)
        else:
            _log.warning("the replay does not advance: %s; no open transaction of Headgate is known there", places)

    def stalled(self, now: float) -> str | None:
        """Why the replay cannot reach its end, once it has made no progress for too long."""
        if now - self._moved_at <= CAMPAIGN_STALL_SECONDS_MAX:
            return None
        places = self._places(self._behind())
        return (
            f"replay has not advanced for {CAMPAIGN_STALL_SECONDS_MAX:.0f} s ({places}): a transaction stays open, "
            "another producer's or one whose end a restarted broker has lost (docs/bugs.md, B20); find it with "
            "kafka-transactions.sh find-hanging and end it with kafka-transactions.sh abort"
        )

    def close(self) -> None:
        """Close reader and writer. Idempotent."""
        if self.writer is not None:
            self.writer.close()
        self._reader.close()

    def _behind(self) -> dict[Partition, int]:
        """Position of each partition that is short of the end captured last."""
        positions = self._reader.positions()
        return {partition: positions[partition] for partition, end in self._ends.items() if positions[partition] < end}

    def _places(self, partitions: Collection[Partition]) -> str:
        """The positions of these partitions, and their ends."""
        positions = self._reader.positions()
        return ", ".join(f"{p.topic}/{p.number} at {positions[p]} of {self._ends[p]}" for p in sorted(partitions))

    def _learn(self, delivery: Delivery, now: Now) -> None:
        key, value = delivery.key, delivery.value
        self.roster.learn(key, value, now.monotonic)
        self.readership.learn(key, value, now.monotonic)
        if key == self._settings.owner_key:
            if self.writer is not None and delivery.offset >= self._ends[ANNOUNCE]:
                # Written after this role's init returned, so its writer's init came later, and the last one wins.
                raise FencedError(f"shard {self._settings.shard}: another owner announced itself while I was replaying")
            self.watch.heard(value if isinstance(value, OwnerAnnounced) else None, now.monotonic)
        self._machine.evolve(self.state, key, value, delivery.offset)
        sign = self._settings.kind.sign(key, value)
        if sign is not None:
            self.leases.learn(sign, now.monotonic)
