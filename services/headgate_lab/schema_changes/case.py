"""One schema change to be tried: the statement, what it needs of its table, and what is known about its outcome."""

import msgspec

__all__ = ["Case", "changing"]


class Case(msgspec.Struct, frozen=True):
    """``clause`` is the row of the clause table that it is for; ``statement`` is about the table ``items``.

    ``prepare`` makes the standard table one that the statement fits. ``lossy`` are columns that may lose values.
    ``refusal``: a part of what ``online`` may answer instead of doing it, because only trying shows what is possible.
    """

    clause: str
    statement: str
    prepare: tuple[str, ...] = ()
    lossy: tuple[str, ...] = ()
    refusal: str = ""

    @property
    def name(self) -> str:
        """For people, and for a test's name."""
        return f"{self.clause}: {self.statement.removeprefix('ALTER TABLE items ')}"


def changing(clause: str, change: str, *prepare: str, lossy: tuple[str, ...] = ()) -> Case:
    """A case whose statement is an ALTER TABLE."""
    return Case(clause, f"ALTER TABLE items {change}", prepare, lossy)
