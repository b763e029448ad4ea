"""A Delta sink's writer in a process of its own. Arguments: folder, mode, batch (msgpack, hex).

It stops where a test has armed a crash point (config/crash_points.py).
"""

import sys
from pathlib import Path

import msgspec

from headgate.sinks.contract import ChangeBatch, SinkError
from headgate.sinks.delta.sink import DeltaSink

folder, mode, packed = sys.argv[1:]
batch = msgspec.msgpack.decode(bytes.fromhex(packed), type=ChangeBatch)
try:
    DeltaSink(Path(folder), appends=mode == "append").writer().apply(batch)
except SinkError as error:
    sys.stdout.write(error.code)
else:
    sys.stdout.write("applied")
