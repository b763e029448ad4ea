"""What is done to a service is done to its whole tree, also to children whose parent has gone before them."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from headgate.provisioning.time_scale import scaled_seconds
from headgate_lab.parts.processes import Fate, ServiceError, ServiceProcess, interrupts_deferred, stop_all
from support.ended import has_ended
from support.waiting import eventually

pytestmark = pytest.mark.integration

WAIT_SECONDS_MAX = scaled_seconds(80)

# A child as Spark's JVM is (of a process group of its own), with a grandchild whose parent ends at once.
FAMILY = """
import subprocess, sys, time
inner = "import subprocess; subprocess.Popen(['sleep', '1000'])"
subprocess.run([sys.executable, '-c', inner], check=True)
subprocess.Popen(['sleep', '1000'], process_group=0)
print('ready', flush=True)
{then}
"""
FOREVER = "time.sleep(1000)"


@pytest.fixture
def services() -> Iterator[list[ServiceProcess]]:
    started: list[ServiceProcess] = []
    yield started
    for service in started:
        service.kill()


def start(services: list[ServiceProcess], folder: Path, then: str = FOREVER) -> ServiceProcess:
    program = (sys.executable, "-c", FAMILY.format(then=then))
    service = ServiceProcess("family", (), {"HEADGATE_X": "1"}, folder, program=program)
    services.append(service)
    eventually(lambda: "ready" in service.log_file.read_text())
    return service


def states(processes: list[psutil.Process]) -> set[str]:
    return {process.status() for process in processes}


def test_a_killed_service_leaves_nothing_behind(services: list[ServiceProcess], tmp_path: Path) -> None:
    service = start(services, tmp_path)
    tree = service.tree()
    assert len(tree) == 3
    assert tree[0].pid == service.pid
    service.kill()
    assert service.exit_code == -9
    assert all(map(has_ended, tree))
    service.check()
    assert service.fate is Fate.KILLED


def test_who_has_got_the_number_of_a_service_that_is_gone_is_left_alone(
    services: list[ServiceProcess], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    killed, ended = start(services, tmp_path), start(services, tmp_path, "sys.exit(0)")
    killed.kill()
    eventually(lambda: ended.exit_code == 0)
    assert len(ended.tree()) == 2, "those whom it has left behind are found by their session"
    ended.kill()
    with subprocess.Popen(["sleep", "1000"], start_new_session=True) as stranger:
        for service in (killed, ended):
            monkeypatch.setattr(service._process, "pid", stranger.pid)
            assert service.tree() == []
        assert stop_all([killed, ended]) == []
        assert stranger.poll() is None
        stranger.kill()


def test_a_frozen_tree_stands_still_whole_and_goes_on_whole(services: list[ServiceProcess], tmp_path: Path) -> None:
    service = start(services, tmp_path)
    tree = service.tree()
    service.freeze()
    eventually(lambda: states(tree) == {psutil.STATUS_STOPPED})
    service.check()
    service.thaw()
    eventually(lambda: psutil.STATUS_STOPPED not in states(tree))
    assert service.exit_code is None


def test_what_a_service_leaves_over_when_it_stops_is_named_and_killed(
    services: list[ServiceProcess], tmp_path: Path
) -> None:
    service = start(services, tmp_path)
    children = service.tree()[1:]
    left = stop_all([service])
    assert service.exit_code == -15
    assert sorted(left) == sorted(f"family: {child.pid} sleep" for child in children)
    assert service.tree() == []
    assert stop_all([service]) == []


def test_a_frozen_service_is_stopped_too(services: list[ServiceProcess], tmp_path: Path) -> None:
    service = start(services, tmp_path)
    service.freeze()
    stop_all([service])
    assert service.exit_code == -15


def test_a_service_that_ends_by_itself_is_reported_with_the_end_of_its_log(
    services: list[ServiceProcess], tmp_path: Path
) -> None:
    service = start(services, tmp_path, "raise SystemExit('port taken')")
    eventually(lambda: service.exit_code is not None)
    with pytest.raises(ServiceError, match=r"exit code 1.*\n(.*\n)*.*port taken"):
        service.check()


def test_an_interrupt_while_a_process_is_being_started_is_kept_until_it_is_known() -> None:
    done: list[str] = []

    def start_interrupted() -> None:
        with interrupts_deferred():
            os.kill(os.getpid(), signal.SIGINT)
            done.append("registered")

    with pytest.raises(KeyboardInterrupt):
        start_interrupted()
    assert done == ["registered"]
    with interrupts_deferred():
        done.append("undisturbed")
    assert done == ["registered", "undisturbed"]


def test_a_process_can_be_started_beside_the_main_thread() -> None:
    done: list[str] = []

    def start() -> None:
        with interrupts_deferred():
            done.append("started")

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert done == ["started"]


def test_writers_under_a_thawed_service_run_before_it_does(
    services: list[ServiceProcess], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = start(services, tmp_path)
    service.freeze()
    root, *writers = service.tree()
    eventually(lambda: states([root, *writers]) == {psutil.STATUS_STOPPED})
    head_starts: list[float] = []

    def head_start(seconds: float) -> None:
        head_starts.append(seconds)
        eventually(lambda: psutil.STATUS_STOPPED not in states(writers), "its writers run")
        assert root.status() == psutil.STATUS_STOPPED, "the service itself still stands"

    with monkeypatch.context() as patched:
        patched.setattr("headgate_lab.parts.processes.time", SimpleNamespace(sleep=head_start))
        service.thaw(head_start_seconds=0.5)
    assert head_starts == [0.5]
    eventually(lambda: root.status() != psutil.STATUS_STOPPED, "and then it runs as well")
