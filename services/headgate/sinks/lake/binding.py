"""Which ledger a lake table is bound to: a property of the table names it, so that no other ledger lets anybody write.

A table has two ledgers if two feeds reach it by different places: one place below the other, a link, a folder that two
machines mount differently, a second catalog. It has another one than before if its ledger was deleted. Each ledger only
knows its own claims, so a process that one of them lets write could undo what another one has fenced.

The first claim binds the table, in the commit that fences it (lake/claims.py). A writer reads the table, then the
ledger, and commits on the version of the table that it has read. So the binding that was checked is the table's
when the commit succeeds. Removing the last feed of a ledger releases the table.
"""

from typing import Final

import msgspec

from headgate.sinks.contract import SinkConflictError, SinkFencedError
from headgate.sinks.lake.ledger import LedgerEntry

__all__ = ["LEDGER", "RELEASED", "Binding", "binding_of", "check_bound", "other_ledger", "refuse_other_ledger"]

LEDGER: Final = "headgate.ledger"
"""The table's property. A property, because users can remove it with every engine, and see it."""

RELEASED: Final = ""
"""Of a table that no ledger has any more. delta-rs removes no properties."""


class Binding(msgspec.Struct, frozen=True):
    """The ledger that a table is bound to. ``place`` is for people: one place may have several names."""

    id: str
    place: str

    @property
    def text(self) -> str:
        """As the property has it."""
        return f"{self.id} {self.place}"


def binding_of(text: str | None) -> Binding | None:
    """The binding that a property has; None if there is none."""
    id_, _, place = (text or RELEASED).partition(" ")
    return Binding(id_, place) if id_ else None


def refuse_other_ledger(table: str, text: str | None, ledger: LedgerEntry | None, place: str) -> None:
    """Raise SinkConflictError if the property binds the table to another ledger than the one at ``place``."""
    bound = binding_of(text)
    if bound is not None and (ledger is None or ledger.id != bound.id):
        raise other_ledger(table, bound, place)


def other_ledger(table: str, bound: Binding, place: str) -> SinkConflictError:
    """The table is not bound to the ledger at ``place``."""
    return SinkConflictError(
        f"table {table} is bound to another ledger, {bound.place} (id {bound.id}), and this feed's is {place}. Either "
        "another feed reaches the table by another address, on which two writers would undo each other's rows, or the "
        "ledger was deleted, or the table was copied. Write the table through one address. If no feed writes it "
        f"through the other ledger any more, remove the table's property {LEDGER} (Spark: ALTER TABLE … UNSET "
        f"TBLPROPERTIES ('{LEDGER}')), then `headgate feed resume`"
    )


def check_bound(table: str, text: str | None, ledger: LedgerEntry | None, place: str) -> None:
    """Raise SinkError unless the property binds the table to the ledger at ``place``."""
    refuse_other_ledger(table, text, ledger, place)
    if binding_of(text) is None:
        raise SinkFencedError(f"table {table} is not bound to its ledger, {place}: was it restored? Claim it again")
