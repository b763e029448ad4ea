"""Packages of the system, unpacked and not installed: what is missing is named."""

import subprocess
from pathlib import Path

import pytest

from headgate.provisioning.errors import ArtifactError
from headgate_lab.embedded.debian import library_path, unpacked

pytestmark = pytest.mark.integration


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HEADGATE_CACHE", str(tmp_path))
    return tmp_path


def test_a_machine_without_apt_is_told_what_would_do(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(cache))
    with pytest.raises(ArtifactError, match=r"fetched by apt-get, which this machine lacks: name a server"):
        unpacked("mariadb-server-core", "usr/sbin/mariadbd", "name a server of your own")


def _tool(folder: Path, name: str, script: str) -> None:
    tool = folder / name
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)


@pytest.fixture
def machine(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine whose packages are ours: `server` needs `lib`, and lists are missing until they are fetched."""
    bin_folder = cache / "bin"
    bin_folder.mkdir()
    for package, path in (("server", "usr/sbin/server"), ("lib", "usr/lib/libx.so.1")):
        tree = cache / "trees" / package
        (tree / path).parent.mkdir(parents=True)
        (tree / path).write_text(package)
        (tree / "DEBIAN").mkdir()
        (tree / "DEBIAN" / "control").write_text(
            f"Package: {package}\nVersion: 1\nArchitecture: all\nMaintainer: x <x@y>\nDescription: x\n"
        )
        subprocess.run(["dpkg-deb", "--build", str(tree), str(cache / f"{package}.deb")], check=True, stdout=-3)
    _tool(
        bin_folder,
        "apt-get",
        f"""echo "$@" >> {cache}/asked
case "$*" in *update*) touch {cache}/listed; exit 0;; esac
[ -e {cache}/listed ] || {{ echo "E: Unable to locate package" >&2; exit 100; }}
for last in "$@"; do :; done; cp {cache}/$last.deb . 2>/dev/null || {{ echo "E: no $last" >&2; exit 100; }}""",
    )
    _tool(bin_folder, "apt-cache", 'printf "server\\n  Depends: libc6\\n  Depends: lib\\n  Depends: <virtual>\\n"')
    _tool(bin_folder, "dpkg-query", 'echo "libc6 installed"')
    _tool(bin_folder, "ldd", 'case "$LD_LIBRARY_PATH" in "") echo "  libx.so.1 => not found";; esac')
    monkeypatch.setenv("PATH", f"{bin_folder}:/usr/bin:/bin")
    return cache


def test_lists_and_libraries_that_lack_are_fetched_and_once_is_enough(machine: Path) -> None:
    root = unpacked("server", "usr/sbin/server", "else")
    assert (root / "usr/sbin/server").read_text() == "server"
    assert library_path(root) == str(root / "usr/lib")
    asked = (machine / "asked").read_text().splitlines()
    assert [line.rsplit(" ", 1)[1] for line in asked] == ["server", "update", "server", "lib"]
    assert unpacked("server", "usr/sbin/server", "else") == root
    assert len((machine / "asked").read_text().splitlines()) == 4
    assert not list(machine.glob("debian-server-new-*"))


def test_a_library_nobody_has_is_named_and_nothing_is_kept(machine: Path) -> None:
    _tool(machine / "bin", "ldd", 'echo "  libz.so.9 => not found"')
    with pytest.raises(ArtifactError, match=r"usr/sbin/server of server finds no libz\.so\.9: name a server"):
        unpacked("server", "usr/sbin/server", "name a server")
    assert not list(machine.glob("debian-server*/"))


def test_a_package_that_does_not_exist_is_quoted(machine: Path) -> None:
    with pytest.raises(ArtifactError, match="apt-get failed: E: no nothing; name a server"):
        unpacked("nothing", "usr/sbin/nothing", "name a server")
