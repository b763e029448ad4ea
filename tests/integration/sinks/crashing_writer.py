"""What an agent does with a span, without the agent. Arguments: sink spec (JSON), claim and batches (msgpack, hex).

It claims, applies the batches one after the other, and claims again when the outcome of one is unknown, as a lane does.
Prints the codes of all errors it meets, or "done"; where it stands still is decided by crash_points.
"""

import sys
from collections.abc import Iterator

import msgspec

from headgate.config.crash_points import CrashPoint, reach
from headgate.config.sink_spec import SinkSpec
from headgate.sinks.contract import ChangeBatch, Claim, Sink, SinkError, SinkUnavailableError
from headgate.sinks.registry import open_sink

ATTEMPTS_MAX = 3


def errors(sink: Sink, claim: Claim, batches: list[ChangeBatch]) -> Iterator[str]:
    writer = sink.writer()
    attempts = 0
    try:
        reach(CrashPoint.BEFORE_CLAIM)
        position = sink.claim(claim)[0]
        reach(CrashPoint.AFTER_CLAIM)
        while left := [batch for batch in batches if batch.ranges[0].expected >= position]:
            try:
                position = writer.apply(left[0]).positions[0]
                reach(CrashPoint.BEFORE_CHECKPOINT)
            except SinkUnavailableError as error:
                attempts += 1
                if attempts == ATTEMPTS_MAX:
                    raise
                yield error.code
                position = sink.claim(claim)[0]
    except SinkError as error:
        yield error.code
    finally:
        writer.close()


spec, packed_claim, packed_batches = sys.argv[1:]
found = errors(
    open_sink(SinkSpec.model_validate_json(spec)),
    msgspec.msgpack.decode(bytes.fromhex(packed_claim), type=Claim),
    msgspec.msgpack.decode(bytes.fromhex(packed_batches), type=list[ChangeBatch]),
)
sys.stdout.write(" ".join(found) or "done")
