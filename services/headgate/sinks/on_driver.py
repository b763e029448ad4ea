"""Sinks that commit on the driver: tasks stage a batch, and one fenced commit per table makes it visible (ADR 0118).

Such a sink is for a target that takes one writer at a time: a topic, or a table whose commit is one file. What tasks
prepare travels to the driver with their results, so a lane stays one streaming query.

- ``stage`` runs in a Spark task. It has no fence, and leaves nothing that a reader of the table can see. It refuses
  single changes as ``apply`` does; what it gives to the quarantine is kept later, by ``keep`` of the commit.
- ``commit`` runs on the driver, once per table and micro-batch. It obeys every rule of ``apply`` (sinks/contract.py),
  but knows no single changes any more: all that was staged becomes visible, or nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, runtime_checkable

import msgspec

from headgate.records.source_tables import SourceTable
from headgate.sinks.contract import Applied, ChangeBatch, ChangeRefusedError, Claim, OffsetRange, Sink, SinkRefusedError

__all__ = ["Commit", "Committer", "DriverSink", "Staged", "StagedWriter", "Stager", "driver_sink"]


class Staged(msgspec.Struct, frozen=True):
    """What a task has prepared of one batch. ``payload`` is the stager's own form, which the committer reads.

    ``ranges`` is what the payload covers: less than the batch's where a refused change ends it (see Applied).
    ``kept`` counts the changes in them that were given to the batch's quarantine instead.
    """

    ranges: dict[int, OffsetRange]
    payload: bytes
    upserts: int = 0
    deletes: int = 0
    kept: int = 0

    @property
    def applied(self) -> Applied:
        """What the batch becomes once it is committed."""
        positions = {partition: span.next for partition, span in self.ranges.items()}
        return Applied(positions, self.upserts, 0, self.deletes, self.kept)


class Commit(msgspec.Struct, frozen=True, kw_only=True):
    """All that was staged of one span in one micro-batch.

    ``ranges`` move the positions over it. ``payloads`` are in the order of the log per partition, and may be none:
    then only positions move. ``source_table``: as in ChangeBatch. ``keep`` sets refused changes aside. It is called
    just before the commit, under the fence, and may raise; then nothing becomes visible.
    """

    claim: Claim
    ranges: Mapping[int, OffsetRange]
    payloads: Sequence[bytes]
    source_table: SourceTable | None = None
    keep: Callable[[], None] | None = None


class Stager(Protocol):
    """Prepares batches inside a Spark task."""

    def stage(self, batch: ChangeBatch) -> Staged:
        """The batch, or a prefix of it per partition, ready to be committed. Raises SinkError."""
        ...

    def close(self) -> None:
        """Let go. Idempotent."""
        ...


class Committer(Protocol):
    """Makes staged batches visible. Lives on the driver; not for more than one thread."""

    def commit(self, commit: Commit) -> None:
        """Make all of it visible and move the positions over all its ranges, in one step under its claim.

        Raises SinkError, and then nothing is visible; after SinkUnavailableError the outcome is unknown.
        """
        ...

    def close(self) -> None:
        """Let go. Idempotent."""
        ...


@runtime_checkable
class DriverSink(Protocol):
    """What a sink has besides the contract of every sink if its plug ``writes`` on the driver."""

    def stager(self) -> Stager:
        """A new stager."""
        ...

    def committer(self) -> Committer:
        """A new committer with a connection of its own."""
        ...


def driver_sink(sink: Sink) -> DriverSink:
    """``sink``, which commits on the driver. Raises SinkRefusedError if it cannot."""
    if not isinstance(sink, DriverSink):
        raise SinkRefusedError(
            f"sink {type(sink).__name__} has no stager and no committer, but its plug writes on the driver. This is an "
            "error of the package that provides it"
        )
    return sink


class StagedWriter:
    """A writer that stages and commits in one process, without a task: what ``writer()`` of such a sink returns."""

    def __init__(self, sink: DriverSink) -> None:
        self._stager = sink.stager()
        self._committer = sink.committer()

    def apply(self, batch: ChangeBatch) -> Applied:
        """See SinkWriter."""
        refused: list[ChangeRefusedError] = []
        quarantine = batch.quarantine
        later = None if quarantine is None else msgspec.structs.replace(quarantine, keep=refused.extend)
        staged = self._stager.stage(msgspec.structs.replace(batch, quarantine=later))
        self._committer.commit(
            Commit(
                claim=batch.claim,
                ranges=staged.ranges,
                payloads=(staged.payload,),
                source_table=batch.source_table,
                keep=(lambda: quarantine.keep(refused)) if quarantine is not None and refused else None,
            )
        )
        return staged.applied

    def close(self) -> None:
        """Let go. Idempotent."""
        self._stager.close()
        self._committer.close()
