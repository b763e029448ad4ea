"""What is left of a run's folder, however the run ends."""

import os
import signal
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from headgate.eventlog.connection import logger as kafka_logger
from headgate_lab.demo.folder import KAFKA_LOG, scratch_parts
from headgate_lab.parts.processes import interrupts_deferred


def run(end: Callable[[], None] = lambda: None, *, keep: bool = False, fail: bool = False) -> Path:
    folder = Path("nowhere")
    with (
        suppress(KeyboardInterrupt, ZeroDivisionError),
        scratch_parts("headgate-test-", lambda _said: None, [], keep=keep) as scratch,
    ):
        folder = scratch.folder
        (folder / "logs" / "agent.log").write_text("said")
        (folder / "kafka" / "data").mkdir(parents=True)
        (folder / "kafka" / "port").write_text("9092")
        (folder / "kafka" / "data" / "0.log").write_text("rows")
        (folder / "kafka" / "broker.log").write_text("a trace")
        (folder / "target").mkdir()
        scratch.failed = fail
        end()
    return folder


def raising(error: type[BaseException]) -> Callable[[], None]:
    def end() -> None:
        raise error

    return end


def terminated_while_deferred() -> None:
    with interrupts_deferred():
        os.kill(os.getpid(), signal.SIGTERM)
    pytest.fail("it was not interrupted")


def left(folder: Path) -> list[str]:
    found = sorted(str(path.relative_to(folder)) for path in folder.rglob("*")) if folder.exists() else []
    for path in sorted(folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    if folder.exists():
        folder.rmdir()
    return found


LOGS = ["kafka", "kafka/broker.log", "logs", "logs/agent.log"]


def test_nothing_is_left_of_a_run_that_has_ended_well_or_was_interrupted() -> None:
    assert left(run()) == []
    assert left(run(raising(KeyboardInterrupt))) == []
    assert left(run(terminated_while_deferred)) == []


def test_the_logs_of_what_failed_are_left_and_everything_if_asked_for() -> None:
    assert left(run(raising(ZeroDivisionError))) == LOGS
    assert left(run(fail=True)) == LOGS
    everything = [*LOGS, "kafka/data", "kafka/data/0.log", "kafka/port", "target"]
    assert left(run(keep=True)) == sorted(everything)


def test_the_logs_of_what_failed_are_left_when_the_user_ends_the_run() -> None:
    assert left(run(raising(KeyboardInterrupt), fail=True)) == LOGS


def test_what_kafka_clients_log_is_in_a_file_beside_the_services_logs() -> None:
    folder = run(lambda: kafka_logger.warning("GETPID [rdkafka#producer-6]: retrying"), keep=True)
    text = (folder / "logs" / KAFKA_LOG).read_text()
    kafka_logger.warning("after the run")
    assert (folder / "logs" / KAFKA_LOG).read_text() == text
    assert text.endswith(" WARNING GETPID [rdkafka#producer-6]: retrying\n")
    assert f"logs/{KAFKA_LOG}" in left(folder)
