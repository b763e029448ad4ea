"""This machine: Python, Java, the jars for Spark, disk space and ports."""

import shutil
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from headgate.app.extras import has_faust
from headgate.app.spark_jars import chosen_jars
from headgate.capture.finding import CaptureFinding, FixIn, State
from headgate.config.settings import Settings, SettingsError
from headgate.provisioning.artifacts import ArtifactSet, is_fetched, problem_of
from headgate.provisioning.cache import cache_folder
from headgate.provisioning.errors import EmbeddedError, NoJavaError
from headgate.provisioning.java import find_java

__all__ = ["machine_findings"]

_PYTHONS: Final = ((3, 11), (3, 13))
"""The first and the last version that pyproject.toml allows."""

_JAVAS_TESTED: Final = (17, 21)

_SPACE_WRONG: Final = 2**30
"""Spark's shuffle files and a batch's rows need more than this."""

_SPACE_WARNING: Final = 5 * 2**30

_JARS: Final[ArtifactSet] = "spark-kafka"
_FETCH: Final = "headgate jars fetch"


def machine_findings(settings: Settings) -> Iterator[CaptureFinding]:
    """Every check of this machine, the same for each service, but that only agents need Java, jars and scratch."""
    yield _python()
    yield _java()
    yield _jars(settings)
    yield from _space(settings)
    yield _port("HTTP port", "HEADGATE_HTTP__PORT", settings.http.bind, settings.http.port)
    if has_faust():
        yield _port("views port", "HEADGATE_VIEWS__PORT", settings.views.bind, settings.views.port)


def _python() -> CaptureFinding:
    found = sys.version_info[:2]
    shown = f"{found[0]}.{found[1]} at {sys.executable}"
    first, last = _PYTHONS
    if first <= found <= last:
        return CaptureFinding("Python", State.OK, shown)
    return CaptureFinding(
        "Python", State.WRONG, shown, then=f"Install Headgate in a Python {first[0]}.{first[1]} to {last[1]}"
    )


def _java() -> CaptureFinding:
    try:
        java = find_java()
    except NoJavaError as error:
        return CaptureFinding(
            "Java",
            State.WRONG,
            str(error),
            fix=("apt-get install --yes openjdk-17-jre-headless",),
            fix_in=FixIn.SHELL,
            then="Only agents need it",
        )
    shown = f"{java.version} at {java.executable} ({java.origin})"
    if java.version in _JAVAS_TESTED:
        return CaptureFinding("Java", State.OK, shown)
    return CaptureFinding("Java", State.WARNING, f"{shown}. Tested are {' and '.join(map(str, _JAVAS_TESTED))}")


def _jars(settings: Settings) -> CaptureFinding:
    if settings.spark.jars:
        try:
            jars = chosen_jars(settings.spark.jars)
        except SettingsError as error:
            return CaptureFinding("Spark jars", State.WRONG, str(error), then="Correct HEADGATE_SPARK__JARS")
        return CaptureFinding("Spark jars", State.OK, f"{len(jars)} of HEADGATE_SPARK__JARS")
    try:
        problem = problem_of(_JARS)
    except EmbeddedError as error:
        return CaptureFinding(
            "Spark jars", State.WRONG, str(error), then="Set HEADGATE_CACHE to a folder that can be written"
        )
    if problem is None:
        return CaptureFinding("Spark jars", State.OK, f"in {cache_folder()}")
    if not is_fetched(_JARS):
        return CaptureFinding(
            "Spark jars",
            State.PENDING,
            f"{problem}. The first start of an agent fetches them, from the internet",
            fix=(_FETCH,),
            fix_in=FixIn.SHELL,
            then="Run it before agents start if they have no internet access or must start at once",
        )
    return CaptureFinding("Spark jars", State.WRONG, problem, fix=(_FETCH,), fix_in=FixIn.SHELL)


def _space(settings: Settings) -> Iterator[CaptureFinding]:
    scratch = Path(settings.spark.scratch or tempfile.gettempdir())
    yield _free("scratch space", scratch, "HEADGATE_SPARK__SCRATCH")


def _free(check: str, folder: Path, setting: str) -> CaptureFinding:
    try:
        free = shutil.disk_usage(folder).free
    except OSError as error:
        return CaptureFinding(
            check, State.WRONG, f"{folder}: {error.strerror}", then=f"Create the folder, or set {setting}"
        )
    shown = f"{free / 2**30:.1f} GiB free in {folder}"
    if free >= _SPACE_WARNING:
        return CaptureFinding(check, State.OK, shown)
    state = State.WRONG if free < _SPACE_WRONG else State.WARNING
    return CaptureFinding(check, state, shown, then=f"Free some, or set {setting} to a folder on a larger disk")


def _port(check: str, setting: str, bind: str, port: int) -> CaptureFinding:
    if port == 0:
        return CaptureFinding(check, State.OK, "any free one")
    family = socket.AF_INET6 if ":" in bind else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((bind, port))
        except OSError as error:
            return CaptureFinding(
                check,
                State.WARNING,
                f"{bind}:{port}: {error.strerror}",
                then=f"If that is not a service of Headgate that runs already, set {setting} to another port",
            )
    return CaptureFinding(check, State.OK, f"{bind}:{port} is free")
