"""What hangs while a part is provisioned is an error that says what to do."""

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

from headgate.provisioning import cache, jvm, killed
from headgate.provisioning.errors import EmbeddedError
from headgate.provisioning.java import Java


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def test_a_lock_whose_holder_does_not_let_go_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cache, "EXCLUSIVE_SECONDS_MAX", 0.0)
    file = tmp_path / "set.lock"
    with file.open("a") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(EmbeddedError, match=r"another process has held .*set\.lock for 0 s"), cache.exclusive(file):
            pytest.fail("two hold it")
    with cache.exclusive(file):
        pass


@pytest.mark.parametrize(
    ("does", "seconds"), [("exec sleep 600", 0.0), ("printf 4711; exec sleep 600", 0.5), ("echo no; exit 1", 60.0)]
)
def test_a_jvm_that_does_not_name_its_port_is_an_error(
    does: str, seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(jvm, "_START_SECONDS", seconds)
    java = Java(executable=script(tmp_path / "java", does), home=tmp_path, version=17, origin="test")
    with pytest.raises(EmbeddedError, match="did not start"):
        jvm.Jvm(java, [], [], tmp_path / "log")


def test_what_the_kernel_does_not_end_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(killed, "KILLED_SECONDS_MAX", 0.0)
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        with pytest.raises(EmbeddedError, match=rf"a part \(process {process.pid}\) was killed but has not ended"):
            killed.await_killed(process, "a part")
        process.kill()
