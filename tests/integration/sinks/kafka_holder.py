"""A Kafka sink's writer in a process of its own. Arguments: brokers, progress topic, batch (msgpack, hex), options.

Options are the feed's, of the sink, as JSON.

It stops where a test has armed a crash point (config/crash_points.py).
"""

import sys

import msgspec

from headgate.config.sink_spec import SinkSpec
from headgate.databases.address import Target as At
from headgate.sinks.contract import ChangeBatch, SinkError
from headgate.sinks.kafka.sink import KafkaSink
from headgate.sinks.kafka.target import TargetCluster

bootstrap, progress, packed, options = sys.argv[1:]
batch = msgspec.msgpack.decode(bytes.fromhex(packed), type=ChangeBatch)
try:
    at = At(f"kafka://{bootstrap}")
    spec = SinkSpec(type="kafka", dsn=at.dsn, **msgspec.json.decode(options))
    KafkaSink(lambda: at, options=spec, target=TargetCluster(at, progress)).writer().apply(batch)
except SinkError as error:
    sys.stdout.write(error.code)
else:
    sys.stdout.write("applied")
