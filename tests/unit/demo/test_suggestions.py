"""What `headgate up` suggests must be possible with the agents that it has started."""

from types import SimpleNamespace
from typing import Any

import pytest

from headgate_lab.demo.command import _to_another_agent


@pytest.mark.parametrize(
    ("agents", "said"),
    [(1, ["kill -9 1 "]), (3, ["table move shop shop.orders agent-2", "kill -9 3 "])],
)
def test_tables_are_moved_to_an_agent_that_is_there(agents: int, said: list[str]) -> None:
    started: list[Any] = [SimpleNamespace(name=f"agent-{number}", pid=number) for number in range(1, agents + 1)]
    lines = _to_another_agent(started)
    assert len(lines) == len(said)
    assert all(part in line for part, line in zip(said, lines, strict=True))
