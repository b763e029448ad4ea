"""Rings of timestamp sets as people write them: a YAML or JSON file, or so many nodes with so many tokens drawn.

nodes:
  - {name: a, shards: 8, tokens: [-4611686018427387904, 0]}
  - {name: b, shards: 4, ignore_msb: 0, tokens: [4611686018427387904]}
"""

import secrets
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from headgate.app.exit_codes import CommandError, ExitCode
from headgate.cli.lookup import not_found
from headgate.config.given_files import given_bytes, shown_name
from headgate.config.yaml_text import YamlError, load_yaml
from headgate.generation.core.tokens import MAX_TOKEN, MIN_TOKEN, Sharding
from headgate.generation.timestamps.core.rings import TOKENS_MAX, RingError, owners_of
from headgate.records.timestamps import RingNode

IGNORE_MSB: Final = 12
"""ScyllaDB's default of ``ignore_msb``."""


class _Node(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    shards: int
    tokens: tuple[int, ...]
    ignore_msb: int = IGNORE_MSB


class _Ring(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    nodes: tuple[_Node, ...]


def read_ring(path: Path) -> tuple[RingNode, ...]:
    """The ring in a file, or on standard input (``-``). Raises CommandError, which names the faulty place."""
    try:
        given = msgspec.convert(load_yaml(given_bytes(path)), _Ring)
    except (OSError, YamlError, msgspec.ValidationError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise CommandError(ExitCode.SETTING, f"ring in {shown_name(path)}: {why}") from error
    nodes = tuple(RingNode(node.name, node.shards, node.ignore_msb, node.tokens) for node in given.nodes)
    return _checked(nodes, f"ring in {shown_name(path)}: ")


def ring_of(nodes: int, vnodes: int, shards: int, ignore_msb: int) -> tuple[RingNode, ...]:
    """Equal nodes ``node1``, ``node2``, … whose tokens are drawn. Raises CommandError."""
    ring: tuple[RingNode, ...] = ()
    for number in range(1, nodes + 1):
        ring = (*ring, draw_node(ring, f"node{number}", vnodes, Sharding(shards, ignore_msb)))
    return _checked(ring)


def draw_node(
    ring: Sequence[RingNode],
    name: str,
    vnodes: int,
    sharding: Sharding,
    draw: Callable[[int], int] = secrets.randbelow,
) -> RingNode:
    """A node with tokens that no other has. Raises CommandError."""
    taken = {token for node in ring for token in node.tokens}
    if len(taken) + vnodes > TOKENS_MAX:
        raise CommandError(ExitCode.SETTING, f"a ring has at most {TOKENS_MAX} tokens, not {len(taken) + vnodes}")
    tokens: set[int] = set()
    while len(tokens) < vnodes:
        tokens.add(MIN_TOKEN + 1 + draw(MAX_TOKEN - MIN_TOKEN - 1))
        tokens -= taken
    return RingNode(name, sharding.shards, sharding.ignore_msb, tuple(sorted(tokens)))


def with_node(ring: Sequence[RingNode], node: RingNode) -> tuple[RingNode, ...]:
    """The ring after a node has joined. Raises CommandError."""
    return _checked((*ring, node))


def without_node(ring: Sequence[RingNode], name: str) -> tuple[RingNode, ...]:
    """The ring after a node has left. Raises CommandError."""
    if name not in {node.name for node in ring}:
        raise not_found(f"node {name!r}", [node.name for node in ring], "the ring is empty")
    return _checked(tuple(node for node in ring if node.name != name))


def shown_ring(ring: Sequence[RingNode]) -> dict[str, Any]:
    """Its form in a file."""
    return {"nodes": [msgspec.to_builtins(node) for node in ring]}


def _checked(ring: tuple[RingNode, ...], where: str = "") -> tuple[RingNode, ...]:
    try:
        owners_of(ring)
    except RingError as error:
        raise CommandError(ExitCode.SETTING, f"{where}{error}") from error
    return ring
