"""Background threads: a crash is logged, counted and told to probes, and no thread is started past the supervisor."""

import ast
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from prometheus_client.exposition import generate_latest

from headgate.app.process import Part, ThreadCrashedError, run_parts
from headgate.observability.metrics import new_registry
from headgate.observability.probes import Probes
from headgate.supervision.threads import SUPERVISOR, BackgroundPool, BackgroundThread

SERVICES: Final = Path(__file__).parents[3] / "services" / "headgate"
SUPERVISION: Final = SERVICES / "supervision" / "threads.py"

STARTERS: Final = {"Thread", "Timer", "ThreadPoolExecutor", "ProcessPoolExecutor", "start_new_thread", "create_task"}
"""Names by which Python starts work that nobody waits for."""

AWAITED: Final = {"views/service.py": {"create_task"}}
"""Tasks that the service awaits, so that their errors are raised there."""


@pytest.fixture(autouse=True)
def crashes_stay_here() -> Iterator[None]:
    SUPERVISOR.reset()
    yield
    SUPERVISOR.reset()


def fail() -> None:
    raise LookupError("no such thing")


def crash(name: str = "some", detail: str = "") -> None:
    thread = BackgroundThread(fail, name=name, detail=detail)
    thread.start()
    thread.join()


def test_a_crash_is_logged_counted_and_makes_the_process_unready(caplog: pytest.LogCaptureFixture) -> None:
    probes = Probes(60.0)
    probes.expect("loop")
    probes.ready("loop")
    assert probes.waiting() == []
    crash("writer", "orders-0")
    (record,) = caplog.records
    assert record.message == "thread writer orders-0 ended with an unexpected error: LookupError: no such thing"
    assert record.exc_info is not None
    assert probes.waiting() == ["thread writer orders-0 ended with an unexpected error: LookupError: no such thing"]
    assert 'headgate_thread_crashes_total{thread="writer"} 1.0' in generate_latest(new_registry()).decode()


def test_a_crash_that_its_creator_reports_is_counted_but_not_fatal() -> None:
    told: list[BaseException] = []
    thread = BackgroundThread(fail, name="copy", on_crash=told.append)
    thread.start()
    thread.join()
    assert [type(error) for error in told] == [LookupError]
    assert (SUPERVISOR.fatal, dict(SUPERVISOR.counts)) == ((), {"copy": 1})


def test_a_task_of_a_pool_that_nobody_waits_for_is_logged_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    pool = BackgroundPool(1, "spans")
    failed = pool.submit(fail)
    assert pool.submit(lambda: 7).result() == 7, "the pool continues"
    assert isinstance(failed.exception(), LookupError)
    pool.shutdown()
    assert "LookupError: no such thing" in caplog.text
    assert (SUPERVISOR.fatal, dict(SUPERVISOR.counts)) == ((), {"spans": 1})


def test_a_service_process_ends_when_one_of_its_threads_has_crashed() -> None:
    stop = threading.Event()

    def serve() -> bool:
        crash("effects-3")
        return stop.wait(60)

    with pytest.raises(ThreadCrashedError, match=r"thread effects-3 ended .* LookupError"):
        run_parts([Part("service", serve, stop.set)], 10.0)


def test_only_the_supervisor_starts_threads() -> None:
    found = []
    for path in sorted(SERVICES.rglob("*.py")):
        name = path.relative_to(SERVICES).as_posix()
        allowed = STARTERS if path == SUPERVISION else AWAITED.get(name, set())
        for node in ast.walk(ast.parse(path.read_text())):
            called = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
            imported = {each.name for each in node.names} if isinstance(node, ast.ImportFrom) else set()
            found += [(name, each) for each in sorted({called, *imported} & STARTERS - allowed)]
    assert found == [], "use BackgroundThread or BackgroundPool of headgate.supervision.threads"
