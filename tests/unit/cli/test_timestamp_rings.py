"""Rings as people write them: files, nodes that join and leave, tokens that are drawn."""

import json
from pathlib import Path

import pytest
import yaml

from headgate.app.exit_codes import CommandError
from headgate.cli.timestamp_rings import draw_node, read_ring, ring_of, shown_ring, with_node, without_node
from headgate.generation.core.tokens import MAX_TOKEN, MIN_TOKEN, Sharding
from headgate.records.timestamps import RingNode

RING = (RingNode("a", 8, 12, (-5, 7)), RingNode("b", 2, 0, (0,)))


@pytest.mark.parametrize("write", [json.dumps, yaml.safe_dump])
def test_a_ring_that_is_shown_is_the_ring_that_is_read(tmp_path: Path, write: object) -> None:
    path = tmp_path / "ring"
    path.write_text(write(shown_ring(RING)))  # type: ignore[operator]
    assert read_ring(path) == RING


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("nodes: [", "ring: it is not valid YAML: line 1, column 9"),
        ("[]", "Expected `object`"),
        ("nodes: [{name: a, shards: 1}]", "missing required field `tokens`"),
        ("nodes: [{name: a, shards: 1, tokens: [x]}]", r"\$.nodes\[0\].tokens\[0\]"),
        ("nodes: [{name: a, shards: 1, tokens: [1], weight: 2}]", "unknown field `weight`"),
        ("nodes: [{name: a, shards: 1, tokens: [1, 1]}]", "token 1 is owned by node a and by node a"),
        ("nodes: []", "no token"),
    ],
)
def test_a_file_that_is_no_ring_is_refused_with_the_place(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "ring"
    path.write_text(text)
    with pytest.raises(CommandError, match=said) as raised:
        read_ring(path)
    assert str(path) in str(raised.value)


def test_a_file_that_is_not_there_is_said(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="No such file"):
        read_ring(tmp_path / "none")


def test_nodes_join_and_leave() -> None:
    joined = with_node(RING, draw_node(RING, "c", 16, Sharding(4, 12)))
    assert [node.name for node in joined] == ["a", "b", "c"]
    assert len(joined[2].tokens) == 16
    assert without_node(joined, "c") == RING
    with pytest.raises(CommandError, match=r"node 'x' does not exist\. Known are: a, b"):
        without_node(RING, "x")
    with pytest.raises(CommandError, match="the same name"):
        with_node(RING, RingNode("a", 1, 12, (99,)))
    with pytest.raises(CommandError, match="no token"):
        without_node(without_node(RING, "a"), "b")


def test_tokens_that_are_drawn_are_those_of_keys_and_of_nobody_else() -> None:
    given = iter([0, 0, MAX_TOKEN - MIN_TOKEN - 2, 6 - MIN_TOKEN, 5])
    node = draw_node(RING, "c", 3, Sharding(1), lambda _below: next(given))
    assert node.tokens == (MIN_TOKEN + 1, MIN_TOKEN + 6, MAX_TOKEN - 1), "7 is owned by a"
    assert sum(len(each.tokens) for each in ring_of(3, 5, 2, 12)) == 15
    with pytest.raises(CommandError, match="at most 65536 tokens, not 65537"):
        draw_node((), "c", 65_537, Sharding(1))
    with pytest.raises(CommandError, match="4096 shards"):
        ring_of(1, 1, 5_000, 12)
