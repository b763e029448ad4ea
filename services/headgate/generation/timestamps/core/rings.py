"""A ring as its nodes describe it, and the generation that is created for it in timestamp mode.

A generation is a function of its set's name, its timestamp and its ring: the random part of its streams' ids is drawn
from the first two. So an owner that continues an interrupted publication makes the very same rows.
"""

import hashlib
from collections.abc import Sequence
from typing import Final

from headgate.generation.core.splitmix import Splitmix
from headgate.generation.core.tokens import MAX_TOKEN, MIN_TOKEN, Sharding, ShardingError
from headgate.generation.core.topology import Topology, make_topology
from headgate.records.names import InvalidNameError, check_name
from headgate.records.timestamps import RingNode

TOKENS_MAX: Final = 65_536
"""Of a ring: 256 nodes of 256 vnodes. A ring is one record, and at ten bytes a token that is 650 KB of its megabyte."""

STREAMS_MAX: Final = 262_144
"""Of a generation. Making so many takes some ten seconds on a busy machine, of the 65 before the generation operates;
ScyllaDB had the same bound when it kept a generation in one row."""

CHUNK_STREAMS: Final = 5_000
"""In one row, at 33 bytes each; and what an owner encodes in one turn, which must be far shorter than its lease."""


class RingError(ValueError):
    """Nodes that are not a ring; the message names the node and what is wrong."""


def owners_of(nodes: Sequence[RingNode]) -> dict[int, Sharding]:
    """Each token with the sharding of the node that owns it. Raises RingError."""
    owners: dict[int, Sharding] = {}
    names: dict[int, str] = {}
    for node in nodes:
        sharding = _checked(node)
        for token in node.tokens:
            if not MIN_TOKEN < token < MAX_TOKEN:
                raise RingError(f"node {node.name}: {token} is not the token of a key")
            if token in owners:
                raise RingError(f"token {token} is owned by node {names[token]} and by node {node.name}")
            owners[token], names[token] = sharding, node.name
    if not owners:
        raise RingError("the ring has no token: it needs at least one node with one token")
    if len({node.name for node in nodes}) != len(nodes):
        raise RingError("two nodes of the ring have the same name")
    if len(owners) > TOKENS_MAX:
        raise RingError(f"a ring has at most {TOKENS_MAX} tokens, not {len(owners)}")
    streams = sum(sharding.shards for sharding in owners.values())
    if streams > STREAMS_MAX:
        raise RingError(f"the ring's generation would have {streams} streams, more than {STREAMS_MAX}: fewer vnodes")
    return owners


def same_ring(one: Sequence[RingNode], other: Sequence[RingNode]) -> bool:
    """Whether a generation for one is right for the other: the names of nodes do not matter. Raises RingError."""
    return owners_of(one) == owners_of(other)


def topology_for(name: str, timestamp_ms: int, nodes: Sequence[RingNode]) -> Topology:
    """The generation of set ``name`` that operates from ``timestamp_ms`` on. Raises RingError."""
    seed = hashlib.sha256(f"{name}/{timestamp_ms}".encode()).digest()
    return make_topology(owners_of(nodes), Splitmix(int.from_bytes(seed[:8], "big")).bits)


def chunks_of_ring(nodes: Sequence[RingNode]) -> list[slice]:
    """Which ranges of the generation each of its rows has. Raises RingError."""
    owners = owners_of(nodes)
    slices, first, streams = [], 0, 0
    for number, token in enumerate(sorted(owners)):
        if streams and streams + owners[token].shards > CHUNK_STREAMS:
            slices.append(slice(first, number))
            first, streams = number, 0
        streams += owners[token].shards
    return [*slices, slice(first, len(owners))]


def _checked(node: RingNode) -> Sharding:
    try:
        check_name("node", node.name)
        return Sharding(node.shards, node.ignore_msb).checked()
    except (InvalidNameError, ShardingError) as error:
        raise RingError(f"node {node.name!r}: {error}") from error
