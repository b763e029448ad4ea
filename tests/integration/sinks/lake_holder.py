"""A lake sink's writer in a process of its own. Arguments: sink spec (JSON), what it is given and its kind: a batch, or
rows to copy (msgpack, hex).

It stops where a test has armed a crash point (config/crash_points.py).
"""

import sys

import msgspec

from headgate.config.sink_spec import SinkSpec
from headgate.sinks.contract import ChangeBatch, SinkError
from headgate.sinks.lake.sink import LakeSink
from headgate.sinks.registry import open_sink
from headgate.sinks.row_copying import CopiedRows

spec, packed, kind = sys.argv[1:]
sink = open_sink(SinkSpec.model_validate_json(spec))
assert isinstance(sink, LakeSink)
try:
    if kind == CopiedRows.__name__:
        sink.writer().copy(msgspec.msgpack.decode(bytes.fromhex(packed), type=CopiedRows))
    else:
        sink.writer().apply(msgspec.msgpack.decode(bytes.fromhex(packed), type=ChangeBatch))
except SinkError as error:
    sys.stdout.write(error.code)
else:
    sys.stdout.write("applied")
