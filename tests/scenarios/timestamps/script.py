"""Scripts of timestamp sets: as those of switches (their script.py), for the same owner.

Rings are written ``a:2:-5,7`` (node a with two shards owns the tokens -5 and 7), several of them after another. Rows
have at most four streams here. The wall clock shows what the monotonic one shows, from 100 s on, unless ``clock`` moves
it. After every block a reader and a writer that follow the topic say what they see.
"""

from typing import Any, Final

from headgate.generation.core.effects import CheckRows, MakeTopology, RowsChecked, TopologyMade
from headgate.generation.timestamps.core import timestamp_views
from headgate.generation.timestamps.core.descriptions import wrong_rows
from headgate.generation.timestamps.core.rings import topology_for
from headgate.generation.timestamps.core.timeline import GenerationTimeline
from headgate.records.timestamps import (
    DescriptionKey,
    RangesDescribed,
    RingNode,
    RingRecorded,
    StreamsListed,
    TimestampLeft,
    TimestampPublished,
    TimestampReaderKey,
    TimestampSetRecorded,
    TimestampsRequested,
    TimestampsRequestKey,
    TimestampsRequestKind,
)
from scenarios.switches import script
from scenarios.switches.script import SET

CHUNK_STREAMS: Final = 4
KEPT_MS: Final = 100_000


class World(script.World):
    def __init__(self) -> None:
        super().__init__()
        self.clock_ms = 0
        self.timeline = GenerationTimeline()

    def wall_ms(self) -> int:
        return super().wall_ms() + self.clock_ms

    def result(self, effect: Any) -> Any:
        if isinstance(effect, MakeTopology):
            return TopologyMade(topology_for(effect.set, effect.timestamp_ms, effect.nodes))
        if isinstance(effect, CheckRows):
            return RowsChecked(wrong_rows(self.state().timestamps, effect.set, effect.rings))
        return super().result(effect)

    def do_clock(self, text: str) -> None:
        """``clock -70s``: the wall clock is set back."""
        self.clock_ms += round(float(text.removesuffix("s")) * 1000)

    def do_ask(self, request: str, kind: str, *nodes: str, based: str = "0", kept: str = str(KEPT_MS)) -> None:
        ring = tuple(node_of(text) for text in nodes)
        delay_ms = 30_000 if kind == "create" else 0
        asked = TimestampsRequested(TimestampsRequestKind(kind), ring, int(based), delay_ms, int(kept), "script", 0)
        self.write(TimestampsRequestKey(SET, request), asked)

    def do_forget_ask(self, request: str) -> None:
        self.write(TimestampsRequestKey(SET, request), None)

    def do_left(self, reader: str, timestamp: str = "") -> None:
        """``left r 100000`` · ``left r`` (it is forgotten)."""
        self.write(TimestampReaderKey(SET, reader), TimestampLeft(int(timestamp), 0) if timestamp else None)

    def do_lose(self, timestamp: str, chunk: str) -> None:
        """Somebody deletes a description."""
        self.write(DescriptionKey(SET, int(timestamp), int(chunk)), None)

    def shown(self) -> list[str]:
        """What a reader and a writer see that have read all."""
        records = self.state().timestamps
        published = timestamp_views.published_of(records, SET)
        lines = [
            f"  reader sees {each.timestamp_ms} until {each.end_ms or '…'}: {len(each.streams)} streams"
            for each in published
        ]
        self.timeline, late, _ = timestamp_views.learn(self.timeline, records, SET, self.wall_ms())
        known = ", ".join(f"{ms}{'' if topology else ' unread'}" for ms, topology in self.timeline.generations)
        return [*lines, *([f"  writer knows {known}"] if known else []), *(f"  late: {each}" for each in late)]


def node_of(text: str) -> RingNode:
    name, shards, tokens = text.split(":")
    return RingNode(name, int(shards), 12, tuple(map(int, tokens.split(","))))


def shown_value(value: Any) -> str:
    match value:
        case TimestampSetRecorded():
            return "; ".join(
                f"{each.timestamp_ms}{f' until {each.expired_ms}' if each.expired_ms else ''}"
                + (f" for {','.join(each.requests)}" if each.requests else "")
                for each in value.generations
            )
        case RingRecorded():
            return f"ring of {', '.join(node.name for node in value.nodes)}"
        case RangesDescribed() | StreamsListed():
            ranges = ", ".join(f"{each.end}: {len(each.streams)} streams" for each in value.ranges)
            return f"{ranges} (of {value.chunks} chunks)"
        case TimestampPublished():
            return f"published{f', until {value.expired_ms}' if value.expired_ms else ''}"
        case TimestampsRequested():
            return value.kind.value
        case TimestampLeft():
            return f"has left {value.left_ms}"
    raise TypeError(value)
