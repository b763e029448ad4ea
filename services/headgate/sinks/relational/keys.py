"""Keys that the source tells apart and the sink does not: rows that would overwrite each other, unnoticed.

A collation that knows no case, or that takes ``a`` and ``a `` for the same, finds another row's key where the
source has a new one. Sinks compare such columns byte by byte as well, and look after each merge whether every row is
there under its own key. Columns of a fixed width keep no trace of what they padded: there the value itself is judged.
"""

from headgate.sinks.relational.text import ToText
from headgate.sinks.relational.times import NotTextError

__all__ = ["FoldedKeysError", "unpadded"]


class FoldedKeysError(Exception):
    """Two keys of the source are one to the sink, whose collation folds them."""


def unpadded(to_text: ToText, pad: str, width: int) -> ToText:
    """For a key column of ``width`` characters that cuts ``pad`` off the end, or fills up with it, before it compares.

    Whoever has a column of the same kind and width sends values without padding or of the full width. A value that
    ends with padding and has another length is of a column that tells ``a`` and ``a `` apart: NotTextError.
    """

    def checked(value: object) -> str:
        text = to_text(value)
        if text.endswith(pad) and len(text) != width:
            raise NotTextError(
                "the key ends with padding (spaces, or zero bytes), which a column of fixed width does not tell apart "
                "from none: give the sink's column a type of variable width"
            )
        return text

    return checked
