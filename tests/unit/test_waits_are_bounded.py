"""No wait in services/ and infra/ for a process, pipe, lock, thread or answer is without a limit, except those named.

A peer that hangs, rather than ends, otherwise keeps us for ever and without a word: a JVM once did so for 14 minutes.
"""

import ast
from collections.abc import Iterator
from typing import Final

import pytest

from support.pages import ROOT

SERVICES: Final = ROOT / "services"
INFRA: Final = ROOT / "infra"

WAITS: Final = {"accept", "acquire", "communicate", "exception", "get", "join", "readline", "result", "wait"}
"""Methods that wait for ever if they are called without an argument, or with ``None`` as their limit."""

RUNS: Final = {
    "subprocess.run",
    "subprocess.call",
    "subprocess.check_call",
    "subprocess.check_output",
    "urllib.request.urlopen",
}

LIMITS: Final = {"timeout", "timeout_seconds", "seconds", "blocking"}

_FLINK_START: Final = "environment.executeSql('INSERT INTO target SELECT * FROM source').getJobClient().get()"

ENDS_BY_ITSELF: Final = {
    ("headgate/coordinator/shell/retention.py", "thread.join()"): "a sweep's reads and writes have limits of their own",
    ("headgate/generation/timestamps/shell/timestamp_streams.py", "self._thread.join()"): (
        "a turn of the thread has limits of its own, and the log must not be closed under it"
    ),
    ("headgate/migration/strategies/online/copying.py", "self.join()"): (
        "a range's statements have their session's limits, and its successor must not meet one that still runs"
    ),
    ("headgate/observability/http.py", "self._thread.join()"): "its loop was told to stop, and handlers do not block",
    ("headgate/sinks/relational/contention.py", "thread.join()"): (
        "the statement has its session's limits, and nobody may use the session under it"
    ),
    ("headgate/sinks/lake/store.py", "each.result()"): "a request's own limits, and those of its repetitions",
    ("headgate_lab/benchmarks/generation_writers.py", "process.stdout.readline()"): (
        "the process gives up by itself, and its end closes the pipe"
    ),
    ("headgate_lab/benchmarks/peers/flink.py", "client.cancel().get()"): "Flink's own request.timeout-ms",
    ("headgate_lab/benchmarks/peers/flink.py", "ended.get()"): "it is done",
    ("headgate_lab/benchmarks/peers/flink.py", _FLINK_START): "Flink's own request.timeout-ms",
    ("headgate_lab/chaos/campaign.py", "one.result()"): "each stage of what a fault takes has a limit of its own",
    ("headgate_lab/demo/load.py", "writer.join()"): "a method of Writer, with a limit",
}
"""By file and call: why it ends."""

IS_NO_WAIT: Final = {
    ("headgate/cli/rendering.py", "captured.get()"): "rich's capture",
    ("headgate/replication/lane.py", "self._query.exception()"): "Spark's query",
    ("headgate/replication/number_stream.py", "query.exception()"): "Spark's query",
    ("headgate/replication/task.py", "TaskContext.get()"): "Spark's context of a task",
    ("headgate/replication/task_run.py", "run.result()"): "what a run has found",
    ("headgate/replication/task_run.py", "rows.result(rests=rests)"): "what a run has written",
}
"""By file and call: whose the method is."""


def is_none(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def is_unlimited(call: ast.Call) -> bool:
    """Whether the call may wait for ever, as far as it can be seen without types."""
    given = {keyword.arg for keyword in call.keywords if not is_none(keyword.value)}
    name = ast.unparse(call.func)
    if name in RUNS:
        return "timeout" not in given
    if name == "fcntl.flock":
        return "LOCK_EX" in ast.unparse(call.args[1]) and "LOCK_NB" not in ast.unparse(call.args[1])
    is_wait = isinstance(call.func, ast.Attribute) and call.func.attr in WAITS
    return is_wait and all(map(is_none, call.args)) and not given & LIMITS


def unlimited(tree: ast.AST) -> Iterator[str]:
    """Calls in the source that may wait for ever. What is awaited is not among them: a task can be cancelled."""
    nodes = list(ast.walk(tree))
    awaited = {id(node.value) for node in nodes if isinstance(node, ast.Await)}
    for node in nodes:
        if isinstance(node, ast.withitem) and ast.unparse(node.context_expr).startswith("subprocess.Popen("):
            yield f"with {ast.unparse(node.context_expr)}"  # it waits at its end
        if isinstance(node, ast.Call) and id(node) not in awaited and is_unlimited(node):
            yield ast.unparse(node)


def found() -> set[tuple[str, str]]:
    roots = ((SERVICES, SERVICES), (INFRA, ROOT))
    paths = ((path, path.relative_to(above).as_posix()) for root, above in roots for path in sorted(root.rglob("*.py")))
    return {(name, call) for path, name in paths for call in unlimited(ast.parse(path.read_text(encoding="utf-8")))}


def test_every_wait_has_a_limit() -> None:
    known, now = ENDS_BY_ITSELF.keys() | IS_NO_WAIT.keys(), found()
    assert now - known == set(), "give it a limit with a reason, and an error that says what was waited for"
    assert known - now == set(), "these calls do not exist any more: remove them here"


@pytest.mark.parametrize(
    ("source", "is_found"),
    [
        ("process.wait()", True),
        ("process.wait(None)", True),
        ("process.wait(timeout=None)", True),
        ("process.wait(60)", False),
        ("thread.join()", True),
        ("thread.join(timeout=SECONDS)", False),
        ("', '.join(names)", False),
        ("lock.acquire(blocking=False)", False),
        ("subprocess.run(command, check=True)", True),
        ("subprocess.run(command, timeout=60)", False),
        ("urllib.request.urlopen(url)", True),
        ("urllib.request.urlopen(url, timeout=30)", False),
        ("fcntl.flock(handle, fcntl.LOCK_EX)", True),
        ("fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)", False),
        ("with subprocess.Popen(command) as process:\n    pass", True),
        ("async def f():\n    await event.wait()", False),
    ],
)
def test_a_wait_without_a_limit_is_found(source: str, *, is_found: bool) -> None:
    assert any(unlimited(ast.parse(source))) is is_found
