"""A writer that freezes in the middle of its transaction. Arguments: dsn, batch (msgpack, hex)."""

import os
import signal
import sys

import msgspec

from headgate.sinks.contract import ChangeBatch, SinkError
from headgate.sinks.postgresql import PostgresSettings, PostgresSink
from headgate.sinks.postgresql.staging import Stage

dsn, batch = sys.argv[1], msgspec.msgpack.decode(bytes.fromhex(sys.argv[2]), type=ChangeBatch)
merge = Stage.merge


def merge_and_freeze(self, reduced, groups):
    merged = merge(self, reduced, groups)
    os.kill(os.getpid(), signal.SIGSTOP)
    return merged


Stage.merge = merge_and_freeze
writer = PostgresSink(PostgresSettings(dsn)).writer()
try:
    writer.apply(batch)
except SinkError as error:
    sys.stdout.write(error.code)
else:
    sys.stdout.write("applied")
