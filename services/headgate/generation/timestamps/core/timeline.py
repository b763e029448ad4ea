"""Timestamp mode: which generation a write belongs to, by the write's own timestamp, and which writes are refused.

For sources that have nothing but clocks. A generation operates from its timestamp on, until that of the next. A writer
knows some generations: of some only the timestamp (*prepared*), of others the topology as well (*inserted*). Writes may
be a little ahead of the local clock, by the *leeway*, since clocks differ; and a write within the leeway may go to an
earlier generation. An older write is accepted only while nothing has changed since: the generation that operated a
leeway ago still does. The rules are ScyllaDB's (``cdc::metadata``), both equality edges included.

Generations have timestamps in whole milliseconds, writes in microseconds. One case cannot be prevented: a generation
that becomes known too late, when writes that belong to it have gone to the one before. ``prepare`` reports it.
"""

from bisect import bisect_right
from typing import Final

import msgspec
from msgspec.structs import replace

from headgate.generation.core.stream_id import StreamId
from headgate.generation.core.timestamp_records import LEEWAY_MS
from headgate.generation.core.topology import Topology

RING_DELAY_MS: Final = 30_000
"""How long news takes to reach all writers."""

_US_PER_MS: Final = 1_000


class GenerationError(ValueError):
    """A write that has no stream, or a generation that cannot follow; the message explains why and what to do."""


class WriteTooNewError(GenerationError):
    """The write's timestamp is further ahead than the leeway: the generation of that time may not be known yet."""


class WriteTooOldError(GenerationError):
    """The write's timestamp is older than the leeway, and its generation does not operate, or does not exist."""


class NoGenerationError(GenerationError):
    """No known generation is as old as the write. The write must wait and be retried, not dropped."""


class GenerationUnreadError(GenerationError):
    """The write's generation is known by its timestamp only; until its topology is read no write of it is accepted."""


class Learned(msgspec.Struct, frozen=True):
    """What became of a generation that was prepared or inserted.

    ``accepted``: its topology is wanted (prepare), or has been taken (insert). ``late_for_us``: the timestamp of the
    latest write that was served before and belongs to it, which therefore went to a wrong stream; as a rule None.
    """

    timeline: "GenerationTimeline"
    accepted: bool
    late_for_us: int | None = None


class GenerationTimeline(msgspec.Struct, frozen=True):
    """All generations that a writer knows: timestamps in ms, ascending, each with its topology once read.

    ``last_write_us`` is the latest timestamp that was served. A value: every change gives another timeline.
    """

    generations: tuple[tuple[int, Topology | None], ...] = ()
    leeway_ms: int = LEEWAY_MS
    last_write_us: int | None = None

    def prepare(self, timestamp_ms: int, now_ms: int) -> Learned:
        """There is a generation with this timestamp; writes of it are refused until it is inserted."""
        known = dict(self.generations)
        if self._is_obsolete(timestamp_ms, now_ms) or known.get(timestamp_ms) is not None:
            return Learned(self, accepted=False)
        return Learned(self._with(timestamp_ms, None), accepted=True, late_for_us=self._late_for(timestamp_ms))

    def insert(self, timestamp_ms: int, topology: Topology, now_ms: int) -> Learned:
        """The topology of a generation, prepared or not. One that is known already stays as it is."""
        known = dict(self.generations)
        if self._is_obsolete(timestamp_ms, now_ms) or known.get(timestamp_ms) is not None:
            return Learned(self, accepted=False)
        late = None if timestamp_ms in known else self._late_for(timestamp_ms)
        return Learned(self._with(timestamp_ms, topology).forget(now_ms), accepted=True, late_for_us=late)

    def stream_of(self, write_us: int, token: int, now_ms: int) -> StreamId:
        """The stream for a write with this timestamp. Raises GenerationError, by the four cases of its subclasses."""
        now_us, leeway_us = now_ms * _US_PER_MS, self.leeway_ms * _US_PER_MS
        if write_us > now_us + leeway_us:
            raise WriteTooNewError(
                f"the write's timestamp {write_us} µs is {(write_us - now_us) / 1e6:.3f} s ahead of this clock, more "
                f"than the {self.leeway_ms / 1000:.0f} s allowed: check the clock of the program that wrote it"
            )
        if write_us > now_us - leeway_us:
            at = self._at(write_us)
            if at is None:
                raise NoGenerationError(f"no known generation is as old as the write at {write_us} µs: wait for one")
            return self._read(at).stream_of(token)
        at = self._at(now_us - leeway_us)
        if at is None or at != self._at(now_us) or write_us < self.generations[at][0] * _US_PER_MS:
            raise WriteTooOldError(
                f"the write's timestamp {write_us} µs is {(now_us - write_us) / 1e6:.3f} s behind this clock, more "
                f"than the {self.leeway_ms / 1000:.0f} s allowed, and {self._why_old(write_us)}. It cannot be written. "
                "Check the clock that gave the timestamp"
            )
        return self._read(at).stream_of(token)

    def served(self, write_us: int) -> "GenerationTimeline":
        """The timeline after a write with this timestamp was served."""
        return replace(self, last_write_us=max(write_us, self.last_write_us or write_us))

    def forget(self, now_ms: int) -> "GenerationTimeline":
        """Without the generations that no write can belong to any more: all before that of a leeway ago."""
        at = self._at((now_ms - self.leeway_ms) * _US_PER_MS)
        return replace(self, generations=self.generations[at:]) if at else self

    def _why_old(self, write_us: int) -> str:
        if not self.generations:
            return "no generation is known yet"
        if self._at(write_us) is None:
            return f"the oldest generation that can still be written begins at {self.generations[0][0]} ms"
        return "another generation has followed the one that it belongs to"

    def _at(self, write_us: int) -> int | None:
        """The number of the generation that operates at a time in µs."""
        at = bisect_right(self.generations, write_us // _US_PER_MS, key=lambda generation: generation[0]) - 1
        return None if at < 0 else at

    def _read(self, at: int) -> Topology:
        timestamp_ms, topology = self.generations[at]
        if topology is None:
            raise GenerationUnreadError(
                f"the generation of {timestamp_ms} ms is known, but its streams could not be read yet: try again"
            )
        return topology

    def _is_obsolete(self, timestamp_ms: int, now_ms: int) -> bool:
        return any(timestamp_ms < later <= now_ms - self.leeway_ms for later, _ in self.generations)

    def _late_for(self, timestamp_ms: int) -> int | None:
        last = self.last_write_us
        if last is None or last < timestamp_ms * _US_PER_MS:
            return None
        later = (other for other, _ in self.generations if other > timestamp_ms)
        return last if all(last < other * _US_PER_MS for other in later) else None

    def _with(self, timestamp_ms: int, topology: Topology | None) -> "GenerationTimeline":
        known = dict(self.generations)
        known[timestamp_ms] = topology
        return replace(self, generations=tuple(sorted(known.items(), key=lambda generation: generation[0])))


def next_generation_ms(now_ms: int, before_ms: int | None, *, ring_delay_ms: int = RING_DELAY_MS) -> int:
    """From when on a new generation operates: so late that all writers know it, and at once if it is the first.

    Raises GenerationError if that is not behind the generation before: a clock has gone back.
    """
    delay_ms = 0 if before_ms is None or ring_delay_ms == 0 else 2 * ring_delay_ms + LEEWAY_MS
    timestamp_ms = now_ms + delay_ms
    if before_ms is not None and timestamp_ms <= before_ms:
        raise GenerationError(
            f"a generation from {timestamp_ms} ms on cannot follow that of {before_ms} ms: this clock is behind the "
            "one that made the generation before"
        )
    return timestamp_ms
