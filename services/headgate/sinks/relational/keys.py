"""Keys that differ at the source and are equal at the sink: such rows would overwrite each other without an error.

Two kinds of column do that. A *collation* that ignores case, or that takes ``a`` and ``a `` for the same, finds another
row's key where the source has a new one: sinks compare such columns byte by byte as well, and check after each merge
that every row is there under its own key. A *type* keeps no trace of how a key was written (``uuid`` knows no case, a
decimal has no more digits than its scale, ``char`` no spaces at its end): there the value is judged before it is sent.
It must be written the way the type writes its own values, and the column must keep all of it. The second rule holds
for every column (``rounding``).

Decimals are compared as numbers, as a decimal column of the source compares them: 1.0 and 1.00 are one key.
"""

from headgate.sinks.relational.text import ToText
from headgate.sinks.relational.times import NotTextError


class FoldedKeysError(Exception):
    """Two keys of the source are one to the sink, whose collation or type does not distinguish them."""


def unpadded(to_text: ToText, pad: str, width: int) -> ToText:
    """For a key column of ``width`` characters that cuts ``pad`` off the end, or fills up with it, before it compares.

    A source column of the same kind and width sends values without padding or of the full width. A value that ends
    with padding and has another length comes from a column that distinguishes ``a`` and ``a ``: NotTextError.
    """

    def checked(value: object) -> str:
        text = to_text(value)
        if text.endswith(pad) and len(text) != width:
            raise NotTextError(
                "the key ends with padding (spaces, or zero bytes), which a column of fixed width does not "
                "preserve. Give the sink's column a type of variable width"
            )
        return text

    return checked
