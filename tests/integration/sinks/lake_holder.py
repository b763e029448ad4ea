"""A lake sink's writer in a process of its own. Arguments: sink spec (JSON), batch (msgpack, hex).

It stops where a test has armed a crash point (config/crash_points.py).
"""

import sys

import msgspec

from headgate.config.feed import SinkSpec
from headgate.sinks.contract import ChangeBatch, SinkError
from headgate.sinks.registry import open_sink

spec, packed = sys.argv[1:]
batch = msgspec.msgpack.decode(bytes.fromhex(packed), type=ChangeBatch)
try:
    open_sink(SinkSpec.model_validate_json(spec)).writer().apply(batch)
except SinkError as error:
    sys.stdout.write(error.code)
else:
    sys.stdout.write("applied")
