"""Change logs: topics whose partitions can be split and merged while they are written and read, in order.

    ChangeWriter   writes a source's changes          ChangeReader   reads them, each key's in their order

For sources that have only clocks, generations that operate from a time on:

    TimestampStreams   names the stream of a write    TimestampReader   lists the streams to read

Names are imported on first use: the pure core beside them needs no Kafka.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from headgate.generation.changelog.core.outbox import PositionError
    from headgate.generation.changelog.core.reading import Gap, PositionsError
    from headgate.generation.changelog.shell.reader import (
        BadRecordError,
        ChangeLogNotFoundError,
        ChangeReader,
        ReadChange,
        ReaderError,
        StreamLag,
    )
    from headgate.generation.changelog.shell.writer import ChangeWriter, WriterError
    from headgate.generation.shell.tail import open_generation_log
    from headgate.generation.timestamps.core.timeline import GenerationError
    from headgate.generation.timestamps.shell.timestamp_reader import TimestampReader
    from headgate.generation.timestamps.shell.timestamp_streams import TimestampStreams
    from headgate.records.places import PlaceError

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
    "BadRecordError": "changelog.shell.reader",
    "ChangeLogNotFoundError": "changelog.shell.reader",
    "ChangeReader": "changelog.shell.reader",
    "ChangeWriter": "changelog.shell.writer",
    "Gap": "changelog.core.reading",
    "GenerationError": "timestamps.core.timeline",
    "PlaceError": ".records.places",
    "PositionError": "changelog.core.outbox",
    "PositionsError": "changelog.core.reading",
    "ReadChange": "changelog.shell.reader",
    "ReaderError": "changelog.shell.reader",
    "StreamLag": "changelog.shell.reader",
    "TimestampReader": "timestamps.shell.timestamp_reader",
    "TimestampStreams": "timestamps.shell.timestamp_streams",
    "WriterError": "changelog.shell.writer",
    "open_generation_log": "shell.tail",
}


def __getattr__(name: str) -> Any:
    if name not in _FROM:
        raise AttributeError(name)
    return getattr(import_module(f".{_FROM[name]}", __name__), name)
