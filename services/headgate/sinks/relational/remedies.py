"""The remedy for a value that a database refused, by the reason. The same in every database."""

from enum import StrEnum


class Remedy(StrEnum):
    """One sentence for people."""

    WIDEN = "Widen the column to the source's length"
    RANGE = "Give the column a type with a wider range, or the source's scale"
    TYPE = "Give the column the source's type, or a text type"
    LETTERS = "Remove the character at the source, or give the column (or its database) an encoding that includes it"
    NULL = "Allow NULL in the column, or give it a value at the source"
    CHECK = "Correct the row at the source, or change the constraint of the column or its domain"
    RAISED = "A trigger or function of the sink raised the error: change it to let the row pass"
    INDEX = "Shorten the value at the source, or drop the index that it is too long for"


def advised(reason: str, remedy: Remedy) -> str:
    """The database's words, and what to do."""
    return f"{reason.rstrip('. ')}. {remedy}"
