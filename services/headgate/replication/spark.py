"""The agent's one Spark session: settings that keep order, a warm start, and a death that stops every writer.

Spark is a JVM that this process starts and talks to; its Python workers are children of that JVM. To kill the tree is
the one way to be sure that no task writes any more, so that is what ``kill`` does; the next ``start`` makes a new one.

With a master elsewhere the workers are other machines': they end when they miss their driver, and until then the
sink's fence alone keeps them out. They are sent this package; what it depends on they must have.
"""

import contextlib
import hashlib
import logging
import os
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import psutil
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

import headgate
from headgate.config import error_values, secrets
from headgate.replication.arrow_map import settle_pyspark
from headgate.replication.causes import OUT_OF_MEMORY, cause_of
from headgate.replication.feed_parts import FeedIncarnation
from headgate.replication.java_options import java_options
from headgate.replication.poll_size import PollSize
from headgate.replication.spark_options import (
    ARCHIVE_QUIET,
    FIXED,
    SparkOptions,
    check_allocation,
    check_options,
    class_archive,
)
from headgate.replication.task import close_unused, warm_up
from headgate.replication.task_slots import SPARE_SLOTS, TaskSlots

_log = logging.getLogger(__name__)

LOOPBACK: Final = "127.0.0.1"

WORKER_DAEMON: Final = "headgate.replication.worker_daemon"
"""What workers are forked from; by name, because only they import it."""

WORKER_MEMORY_ARENAS: Final = "1"
"""A client of Kafka fills its buffers on threads of its own, and the worker's only other thread frees them. glibc keeps
memory apart by thread, so workers that had read much kept more than twice of what they ever needed at a time."""

EXECUTORS_SECONDS_MAX: Final = 60.0
"""How long work may wait for a cluster's first executor. A master replaces a lost one within seconds."""

_JVM_EXIT_SECONDS: Final = 10.0
"""A killed process is gone at once; this is for a machine on its knees."""


JVM_END_SECONDS: Final = 2.0
"""How long a JVM that does not answer may take to be gone, so that its exit code can be reported."""

OUT_OF_MEMORY_EXIT: Final = 52
"""Spark's exit code for it."""


JAVA_OPTIONS: Final = "spark.driver.defaultJavaOptions"
"""The operator's. Spark puts them in front of Headgate's, where they would not win."""

WARM_TRIES: Final = 3
"""How often workers are warmed: with one try, one that is killed in that moment would end the agent."""


class SparkStartError(Exception):
    """Spark does not start; the text contains its output, and what to check."""


def end_of_jvm(error: Exception) -> str:
    """Why the JVM did not answer a call."""
    process = getattr(SparkContext._gateway, "proc", None)
    try:
        code = None if process is None else process.wait(JVM_END_SECONDS)
    except subprocess.TimeoutExpired:
        code = None
    if code is None:
        return f"the Spark JVM does not answer: {error}"
    if code == OUT_OF_MEMORY_EXIT:
        return OUT_OF_MEMORY
    return f"the Spark JVM ended with code {code}: its output is in the agent's output"


def _ship(session: SparkSession, scratch: Path) -> None:
    """Send executors this very package: tasks and driver must be of one version, whatever is installed there."""
    package = Path(headgate.__file__).parent
    # Named after its content, for an executor keeps what it has under a name.
    files = sorted(package.rglob("*.py"))
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:12]
    archive = scratch / f"headgate-{digest}.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as shipped:
        for file in files:
            shipped.write(file, Path(package.name) / file.relative_to(package))
    searched = list(sys.path)
    session.sparkContext.addPyFile(str(archive))
    sys.path[:] = searched  # the driver has the package, and its data files, where it always was


class SparkRuntime:
    """At most one Spark JVM at a time; made again after its death."""

    def __init__(self, settings: SparkOptions) -> None:
        check_options(settings.options)
        check_allocation(settings)
        self.settings = settings
        self._lock = threading.Lock()
        self._session: SparkSession | None = None
        self._process: Any = None
        self._killed = False
        self._starved_since: float | None = None
        threads = settings.local_threads
        if threads is None:
            self.slots = TaskSlots(settings.cores, 0)
        else:
            self.slots = TaskSlots(threads, SPARE_SLOTS, settings.cores)
        self.poll_size = PollSize()

    def start(self) -> SparkSession:
        """The session, started and warmed if there is none (about 8 s). Raises SparkStartError."""
        with self._lock:
            if self._alive():
                assert self._session is not None  # noqa: S101 - else it would not be alive
                return self._session
            self._killed = False
            if self._process is not None and self._process.poll() == OUT_OF_MEMORY_EXIT:
                self.poll_size.ran_out_of_memory(time.monotonic())
            self._kill_tree()  # a context that was stopped leaves its JVM behind
            self._discard()
            self._session = self._launch()
            if self._killed:
                self._kill_tree()
                raise SparkStartError("Spark was killed while it started")
            return self._session

    @property
    def pid(self) -> int | None:
        """The JVM's process id; None if there is none."""
        return None if self._process is None else int(self._process.pid)

    def memory_bytes(self) -> dict[str, int]:
        """Resident memory of ``driver`` (this process), ``jvm`` and ``workers`` on this machine; 0 without Spark.

        Pages that workers share with the process they were forked from count for each of them.
        """
        sizes = {"driver": psutil.Process().memory_info().rss, "jvm": 0, "workers": 0}
        for number, process in enumerate(self._family()):
            with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):  # it has ended since
                sizes["workers" if number else "jvm"] += process.memory_info().rss
        return sizes

    def close_unused(self, live: Iterable[FeedIncarnation]) -> None:
        """Have workers close their sessions for feeds that are not among ``live``, as far as they can be reached."""
        session, workers = self._session, len(self._family()) - len(("the JVM", "the daemon"))
        if session is None or not self._alive():
            return
        try:
            close_unused(session, max(workers, self.settings.cores), live)
        except (PySparkException, Py4JError, OSError, AttributeError) as error:
            # AttributeError: PySpark has let go of a JVM that another thread has stopped; its workers are gone with it.
            _log.info("sessions of feeds that have ended are closed later: %s", cause_of(error))

    def _family(self) -> list[psutil.Process]:
        """The JVM, then all that it has started; empty if there is none, or no more."""
        process = self._process
        if process is None or process.poll() is not None:  # collected: its number may belong to another process by now
            return []
        try:
            root = psutil.Process(process.pid)
            return [root, *root.children(recursive=True)]
        except psutil.NoSuchProcess:
            return []

    def alive(self) -> bool:
        """Whether Spark was started, and runs."""
        return self._alive()

    def end_if_starved(self, now: float) -> None:
        """Kill a Spark whose jobs get no executors: a master that was restarted does not know it any more."""
        starved = not self.settings.in_one_process and self._alive() and self._waits_for_executors()
        self._starved_since = (self._starved_since or now) if starved else None
        if self._starved_since is not None and now - self._starved_since > EXECUTORS_SECONDS_MAX:
            self._starved_since = None
            _log.warning(
                "Spark has had no executor for %g s though there was work: it is ended, and %s is asked again",
                EXECUTORS_SECONDS_MAX,
                self.settings.master,
            )
            self.kill()

    def _waits_for_executors(self) -> bool:
        try:
            tracker = self._session.sparkContext._jsc.sc().statusTracker()  # type: ignore[union-attr]
            # The driver is included in the list.
            return len(tracker.getActiveJobIds()) > 0 and len(tracker.getExecutorInfos()) <= 1
        except (Py4JError, OSError):
            return False

    def stop(self) -> None:
        """End Spark in order; a start under way is given up, and its JVM ends with this process at the latest."""
        if not self._lock.acquire(blocking=False):
            self.kill()
            return
        try:
            if self._session is not None and self._alive():
                self._session.stop()
            self._kill_tree()
            self._discard()
        finally:
            self._lock.release()

    def kill(self) -> None:
        """End the JVM and its Python workers at once. Needs no lock: a start under way must not delay it."""
        self._killed = True
        self._kill_tree()

    def _alive(self) -> bool:
        """Whether there is a JVM, and in it a context that has not been stopped, as by a master that gave it up."""
        if self._process is None or self._process.poll() is not None or self._session is None:
            return False
        context = self._session.sparkContext._jsc  # None once another thread has stopped it
        try:
            return context is not None and not context.sc().isStopped()
        except (Py4JError, OSError):
            return False

    def _launch(self) -> SparkSession:
        settings = self.settings
        if settings.java_home is not None:
            os.environ["JAVA_HOME"] = str(settings.java_home)
        if settings.in_one_process:
            # pyspark takes any python3 from PATH otherwise, and that one does not know us.
            os.environ["PYSPARK_PYTHON"] = sys.executable
        else:
            # Executors may have theirs elsewhere; it must be the same version and have what Headgate depends on.
            os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        missing = [str(jar) for jar in settings.jars if not Path(jar).is_file()]
        if missing:
            raise SparkStartError(f"Spark's Kafka connector is not there: {', '.join(missing)}")
        settings.scratch.mkdir(parents=True, exist_ok=True)
        # Spark has no weights for tasks: places beyond the cores are for tasks that wait for a sink (task_slots.py).
        threads = settings.local_threads
        master = settings.master if threads is None else f"local[{threads + SPARE_SLOTS}]"
        builder = SparkSession.builder.master(master).appName("headgate-agent")
        java = java_options(settings.cores, settings.driver_memory, settings.options.get(JAVA_OPTIONS, ""), os.environ)
        properties = {
            **FIXED,
            "spark.executorEnv.MALLOC_ARENA_MAX": WORKER_MEMORY_ARENAS,
            **{f"spark.executorEnv.{name}": value for name, value in (secrets.rules() | error_values.rules()).items()},
            **settings.options,
            "spark.ui.enabled": str(settings.ui).lower(),
            "spark.ui.port": str(settings.ui_port),
            "spark.driver.memory": settings.driver_memory,
            "spark.jars": ",".join(str(jar) for jar in settings.jars),
            "spark.local.dir": str(settings.scratch),
            # A killed JVM cannot clean up after itself; its leavings go with the scratch folder.
            "spark.driver.extraJavaOptions": f'"-Djava.io.tmpdir={settings.scratch}" {java}{_of_archive()}',
            "spark.sql.warehouse.dir": str(settings.scratch / "warehouse"),
        }
        properties.pop(JAVA_OPTIONS, None)  # they are in java_options, at its end
        if settings.in_one_process:
            properties.setdefault("spark.python.daemon.module", WORKER_DAEMON)
        if settings.master.startswith("local"):
            properties = {"spark.driver.host": LOOPBACK, "spark.driver.bindAddress": LOOPBACK} | properties
            os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)  # or Spark's pages are open to every network
            # ``local-cluster``: its executors' folders would be made where pyspark is installed, and stay there.
            os.environ.setdefault("SPARK_WORKER_DIR", str(settings.scratch / "workers"))
        for name, value in sorted(properties.items()):
            builder = builder.config(name, value)
        settle_pyspark()
        try:
            session = builder.getOrCreate()
            self._process = SparkContext._gateway.proc
            _hush(session)
            if not settings.in_one_process:
                _ship(session, settings.scratch)
        except Exception as error:
            raise SparkStartError(
                f"Spark did not start with master {settings.master}: {cause_of(error)}; look at its output above, at "
                f"JAVA_HOME ({os.environ.get('JAVA_HOME', 'not set')}) and at the free space of {settings.scratch}"
            ) from error
        if not settings.in_one_process:
            _log.info("a first job waits for executors of %s", settings.master)
        try:
            _warm_up(session, settings.cores)
        except (PySparkException, Py4JError, OSError) as error:
            raise SparkStartError(
                f"Spark did not start with master {settings.master}: a first job failed: {cause_of(error)}; its Python "
                f"is {os.environ['PYSPARK_PYTHON']} and must be {sys.version_info[0]}.{sys.version_info[1]} with all "
                "that Headgate depends on, on every executor (docs/configuration.md, On a Spark cluster)"
            ) from error
        if settings.ui:
            _log.info("Spark's pages are at %s", session.sparkContext.uiWebUrl)
        return session

    def _kill_tree(self) -> None:
        process, family = self._process, self._family()
        if process is None or not family:
            return
        for member in family:
            try:
                member.kill()
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(family[1:], timeout=_JVM_EXIT_SECONDS)
        process.wait(timeout=_JVM_EXIT_SECONDS)

    def _discard(self) -> None:
        """Make pyspark forget a dead JVM, whose gateway it otherwise keeps in class attributes permanently."""
        self._session = None
        if self._process is None:
            return
        if self._process.stdin is not None:
            self._process.stdin.close()
        gateway = SparkContext._gateway
        if gateway is not None:
            with contextlib.suppress(Py4JError, OSError):  # the JVM is dead and may not answer
                gateway.shutdown()
        SparkContext._gateway = None
        SparkContext._jvm = None
        SparkContext._active_spark_context = None
        SparkSession._instantiatedSession = None
        self._process = None


def _of_archive() -> str:
    """The JVM options for the archive of Spark's classes, if it exists."""
    archive = class_archive()
    return f' "-XX:SharedArchiveFile={archive}" {ARCHIVE_QUIET}' if archive.is_file() else ""


def _hush(session: SparkSession) -> None:
    """Spark's server for accumulators prints a traceback when the JVM that is connected to it has been killed."""
    session.sparkContext._accumulatorServer.handle_error = lambda _request, _client: _log.debug("accumulators end")


def _warm_up(session: SparkSession, cores: int) -> None:
    """Have a Python worker for each core. One that is killed under it is replaced by the JVM, if asked again."""
    for tries_left in reversed(range(WARM_TRIES)):
        try:
            warm_up(session, cores)
        except (Py4JJavaError, PySparkException):
            if not tries_left:
                raise
        else:
            return
