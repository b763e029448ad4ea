"""The wheels: what they contain, and that they work outside the repository."""

import os
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Iterator
from email.message import Message
from email.parser import Parser
from pathlib import Path
from typing import Final

import pytest

from headgate import __version__

REPOSITORY: Final = Path(__file__).parents[3]
UV: Final = str(Path(sys.executable).with_name("uv"))
PYTHONS: Final = ("3.11", "3.12", "3.13")
"""The versions that requires-python and the classifiers name."""


def _run(*words: str, cwd: Path, **environment: str) -> str:
    """Standard output of a command in ``cwd`` that knows nothing of the repository."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
    done = subprocess.run(
        words, cwd=cwd, env=inherited | environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheel of each distribution, built by way of its source distribution."""
    folder = tmp_path_factory.mktemp("dist")
    _run(UV, "build", "--quiet", "--all-packages", "--out-dir", str(folder), cwd=REPOSITORY)
    return {path.name.partition("-")[0]: path for path in folder.glob("*.whl")}


@pytest.fixture(scope="module")
def installed(wheels: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The ``bin`` of an environment with both wheels. The packages they depend on come from this environment."""
    folder = tmp_path_factory.mktemp("elsewhere") / "venv"
    _run(UV, "venv", "--quiet", "--python", sys.executable, str(folder), cwd=folder.parent)
    python = folder / "bin" / "python"
    _run(
        UV, "pip", "install", "--quiet", "--no-deps", "--python", str(python), *map(str, wheels.values()),
        cwd=folder.parent,
    )  # fmt: skip
    site = next(folder.glob("lib/python*/site-packages"))
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib"))
    return folder / "bin"


def _metadata(wheel: Path) -> Message:
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return Parser().parsestr(archive.read(name).decode())


def test_each_says_its_licence_and_the_pythons_it_is_for(wheels: dict[str, Path]) -> None:
    assert set(wheels) == {"headgate", "headgate_lab"}
    for wheel in wheels.values():
        said = _metadata(wheel)
        classifiers = said.get_all("Classifier") or []
        assert said["Version"] == __version__
        assert said["License-Expression"] == "Apache-2.0"
        assert said.get_all("License-File") == ["LICENSE", "NOTICE"]
        assert said.get_all("Project-URL")
        for python in PYTHONS:
            assert f"Programming Language :: Python :: {python}" in classifiers


def test_a_licence_is_the_same_in_both_distributions() -> None:
    for name in ("LICENSE", "NOTICE"):
        of_the_lab = REPOSITORY / "services" / "headgate_lab" / name
        assert of_the_lab.read_bytes() == (REPOSITORY / name).read_bytes()


def test_a_wheel_has_every_file_of_its_package_and_no_other(wheels: dict[str, Path]) -> None:
    folders = {
        "headgate/eventlog/schemas/": REPOSITORY / "schemas",
        "headgate/": REPOSITORY / "services" / "headgate",
        "headgate_lab/": REPOSITORY / "services" / "headgate_lab",
    }
    wanted = {
        prefix + str(path.relative_to(folder))
        for prefix, folder in folders.items()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    own_files = {f"headgate_lab/{name}" for name in ("pyproject.toml", "LICENSE", "NOTICE")}
    there: set[str] = set()
    for wheel in wheels.values():
        with zipfile.ZipFile(wheel) as archive:
            there |= {name for name in archive.namelist() if ".dist-info/" not in name}
    assert there == wanted - own_files


def test_the_command_works_outside_the_repository(installed: Path, tmp_path: Path) -> None:
    headgate = str(installed / "headgate")
    assert _run(headgate, "--version", cwd=tmp_path) == f"headgate {__version__}\n"
    said = _run(headgate, "--help", cwd=tmp_path)
    for command in ("feed", "serve", "demo"):
        assert f" {command} " in said
    # The lab's are imported when they are called.
    assert "Usage: headgate demo" in _run(headgate, "demo", "--help", cwd=tmp_path)


def test_installed_packages_are_the_wheels_and_find_their_files(installed: Path, tmp_path: Path) -> None:
    code = """
from pathlib import Path
import headgate, headgate_lab
from headgate.eventlog.schema_files import schema_directory, schemas
from headgate.provisioning import artifacts
print(Path(headgate.__file__).parent, Path(headgate_lab.__file__).parent, schema_directory())
assert schemas() and (Path(artifacts.__file__).parent / "pins.json").is_file()
"""
    places = _run(str(installed / "python"), "-c", code, cwd=tmp_path).split()
    assert all(Path(place).is_relative_to(installed.parent) for place in places)


@pytest.mark.parametrize("python", [version for version in PYTHONS if not sys.version.startswith(version)])
def test_every_dependency_has_a_wheel_for(python: str, tmp_path: Path) -> None:
    """PySpark is pure Python, and published as source only."""
    _run(
        UV, "pip", "install", "--quiet", "--dry-run", "--no-deps", "--require-hashes", "--python-version", python,
        "--target", str(tmp_path / "none"), "--only-binary", ":all:", "--no-binary", "pyspark",
        "--requirements", str(REPOSITORY / "requirements.image.lock"),
        cwd=tmp_path,
    )  # fmt: skip
