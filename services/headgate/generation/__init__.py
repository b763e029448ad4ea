"""Change logs whose partitions are changed while they are written and read, with every key's order kept.

    ChangeWriter   writes a source's changes          ChangeReader   reads them in order

For sources that have nothing but clocks, generations that operate from a time on:

    TimestampStreams   which stream a write belongs to          TimestampReader   which streams there are to be read

They are imported when they are asked for: the pure core beside them needs no Kafka.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from headgate.generation.shell.reader import ChangeReader
    from headgate.generation.shell.timestamp_reader import TimestampReader
    from headgate.generation.shell.timestamp_streams import TimestampStreams
    from headgate.generation.shell.writer import ChangeWriter

__all__ = ["ChangeReader", "ChangeWriter", "TimestampReader", "TimestampStreams"]

_FROM: Final = {
    "ChangeReader": "headgate.generation.shell.reader",
    "ChangeWriter": "headgate.generation.shell.writer",
    "TimestampReader": "headgate.generation.shell.timestamp_reader",
    "TimestampStreams": "headgate.generation.shell.timestamp_streams",
}


def __getattr__(name: str) -> Any:
    if name not in _FROM:
        raise AttributeError(name)
    return getattr(import_module(_FROM[name]), name)
