"""Creates or checks what a claim's table needs before it is claimed, where that depends on the source topic."""

from typing import Protocol, runtime_checkable

from headgate.sinks.contract import Claim

__all__ = ["Preparing"]


@runtime_checkable
class Preparing(Protocol):
    """A sink whose tables are made after the source topic."""

    def prepare(self, claim: Claim, partitions: int) -> None:
        """Have the table, for a source topic of so many partitions, or raise SinkError. Idempotent."""
        ...
