"""Whether a feed has written to a table yet: a missing table is either still to be created, or was dropped."""

from typing import Protocol, runtime_checkable

from headgate.sinks.contract import Claim

__all__ = ["Untouched"]


@runtime_checkable
class Untouched(Protocol):
    """What a sink must be able to report so that its missing tables may be created."""

    def is_new(self, claim: Claim) -> bool:
        """Whether nothing of the feed has been applied to the table in the claim's incarnation. Raises SinkError.

        False, too, if it cannot be known: rows of partitions that are not the claim's may be of another part of the
        table, whose start is not known here. False for a feed that was removed.
        """
        ...
