"""A writer that freezes in the middle of its transaction. Arguments: sink spec (JSON), batch (msgpack, hex)."""

import os
import signal
import sys

import msgspec

from headgate.config.sink_spec import SinkSpec
from headgate.sinks.contract import ChangeBatch, SinkError
from headgate.sinks.registry import open_sink
from headgate.sinks.relational.postgresql.connection import PostgresSinkSession
from headgate.sinks.relational.staging import StagingTable

spec = SinkSpec.model_validate_json(sys.argv[1])
batch = msgspec.msgpack.decode(bytes.fromhex(sys.argv[2]), type=ChangeBatch)
merge = StagingTable.merge


def merge_and_freeze(self, reduced, groups):
    merged = merge(self, reduced, groups)
    os.kill(os.getpid(), signal.SIGSTOP)
    return merged


begin_with = PostgresSinkSession.begin_with


def begin_and_freeze(self, claim, statements):
    answers = begin_with(self, claim, statements)
    os.kill(os.getpid(), signal.SIGSTOP)
    return answers


StagingTable.merge = merge_and_freeze
PostgresSinkSession.begin_with = begin_and_freeze
writer = open_sink(spec).writer()
try:
    writer.apply(batch)
except SinkError as error:
    sys.stdout.write(error.code)
else:
    sys.stdout.write("applied")
