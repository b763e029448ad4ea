"""Change logs: topics whose partitions can be split and merged while they are written and read, in order.

    ChangeWriter   writes a source's changes          ChangeReader   reads them, each key's in their order

For sources that have only clocks, generations that operate from a time on:

    TimestampStreams   names the stream of a write    TimestampReader   lists the streams to read

Names are imported on first use: the pure core beside them needs no Kafka.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from headgate.generation.core.ingesting import PlaceError
    from headgate.generation.core.outbox import PositionError
    from headgate.generation.core.reading import Gap, PositionsError
    from headgate.generation.core.timeline import GenerationError
    from headgate.generation.shell.reader import (
        BadRecordError,
        ChangeLogNotFoundError,
        ChangeReader,
        ReadChange,
        ReaderError,
        StreamLag,
    )
    from headgate.generation.shell.timestamp_reader import TimestampReader
    from headgate.generation.shell.timestamp_streams import TimestampStreams
    from headgate.generation.shell.writer import ChangeWriter, WriterError, open_generation_log

__all__ = [
    "BadRecordError",
    "ChangeLogNotFoundError",
    "ChangeReader",
    "ChangeWriter",
    "Gap",
    "GenerationError",
    "PlaceError",
    "PositionError",
    "PositionsError",
    "ReadChange",
    "ReaderError",
    "StreamLag",
    "TimestampReader",
    "TimestampStreams",
    "WriterError",
    "open_generation_log",
]

_FROM: Final = {
    "BadRecordError": "shell.reader",
    "ChangeLogNotFoundError": "shell.reader",
    "ChangeReader": "shell.reader",
    "ChangeWriter": "shell.writer",
    "Gap": "core.reading",
    "GenerationError": "core.timeline",
    "PlaceError": "core.ingesting",
    "PositionError": "core.outbox",
    "PositionsError": "core.reading",
    "ReadChange": "shell.reader",
    "ReaderError": "shell.reader",
    "StreamLag": "shell.reader",
    "TimestampReader": "shell.timestamp_reader",
    "TimestampStreams": "shell.timestamp_streams",
    "WriterError": "shell.writer",
    "open_generation_log": "shell.writer",
}


def __getattr__(name: str) -> Any:
    if name not in _FROM:
        raise AttributeError(name)
    return getattr(import_module(f"{__name__}.{_FROM[name]}"), name)
