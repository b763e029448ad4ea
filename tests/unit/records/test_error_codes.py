"""The table of error codes, the code that raises them, and the page that documents them."""

import ast
from collections.abc import Iterator
from pathlib import Path

from headgate.coordinator.core.spans.deadlines import DRAIN_CODE, START_CODE
from headgate.records.error_codes import (
    COPYING,
    COPYING_HELD,
    ERROR_CODES,
    MAINTAINING,
    MEMORY_SHORT,
    PARTITIONS_GROWN,
    SINK_SLOW,
)

ROOT = Path(__file__).parents[3]
SERVICES = ROOT / "services" / "headgate"
RAISED_IN = ("replication", "agent/core/span", "formats", "sinks", "sources", "tables")
"""Where tables fail."""
FAILING = ("fail", "failed", "stopped", "Failed", "CallFailed", "SinkFailure")


WITHOUT_A_FAILURE = {
    START_CODE: True,
    DRAIN_CODE: True,
    PARTITIONS_GROWN: False,
    MEMORY_SHORT: True,
    SINK_SLOW: True,
    COPYING: True,
    COPYING_HELD: True,
    MAINTAINING: True,
}
"""Codes that nothing fails with at an agent, with whether they are retryable: the owner's, and those of tables that are
slow, copied or maintained."""


def trees() -> Iterator[ast.AST]:
    for folder in RAISED_IN:
        for file in sorted((SERVICES / folder).rglob("*.py")):
            yield from ast.walk(ast.parse(file.read_text(encoding="utf-8")))


def in_classes() -> dict[str, bool]:
    """Code → retryable, as exception classes say; what none says is not."""
    found: dict[str, bool] = {}
    for node in trees():
        if isinstance(node, ast.ClassDef):
            said = {
                part.targets[0].id: part.value.value
                for part in node.body
                if isinstance(part, ast.Assign)
                and isinstance(part.targets[0], ast.Name)
                and isinstance(part.value, ast.Constant)
            }
            if "code" in said:
                found[str(said["code"])] = bool(said.get("retryable"))
    return found


def in_calls() -> dict[str, bool]:
    """Code → retryable, as written where a table is failed without an exception of ours."""
    found = {}
    for node in trees():
        if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", None)) in FAILING:
            codes = [arg.value for arg in node.args if isinstance(arg, ast.Constant) and isinstance(arg.value, str)]
            flags = [word.value.value for word in node.keywords if isinstance(word.value, ast.Constant)]
            if codes and flags:
                found[codes[0]] = bool(flags[0])
    return found


def test_every_code_is_in_the_table_with_what_its_error_says() -> None:
    classes, calls = in_classes(), in_calls()
    assert len(classes) > 10
    assert len(calls) > 3
    assert set(classes) | set(calls) | set(WITHOUT_A_FAILURE) == set(ERROR_CODES)
    for code, retryable in (classes | calls | WITHOUT_A_FAILURE).items():
        assert ERROR_CODES[code].retryable is retryable, code
