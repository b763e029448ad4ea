"""One folder for everything a run starts, and the way everything in it ends, however the run ends."""

import logging
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import msgspec
import psutil

from headgate.eventlog.connection import logger as kafka_logger
from headgate_lab.parts.orphans import no_orphans
from headgate_lab.parts.processes import terminated_as_interrupt, uninterrupted

KAFKA_LOG: Final = "kafka-clients.log"
"""Beside the services' logs: what the Kafka clients of the run itself have logged."""


class ClusterAt(msgspec.Struct, frozen=True):
    """What the run's own reader must know of its cluster; the user's settings are for another one."""

    bootstrap: str
    cluster: str = "headgate"
    shards: int = 1
    replication_factor: int = 1
    cloudevents: bool = False
    kafka: dict[str, str] = {}


class Scratch:
    """``folder``, with ``logs`` in it, and the ``parts`` that are stopped in the end."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.parts = ExitStack()
        self.failed = False
        """Whether what was found is a reason to look at the logs; a run that raises is one anyway."""


@contextmanager
def scratch_parts(prefix: str, say: Callable[[str], None], left_over: list[str], *, keep: bool) -> Iterator[Scratch]:
    """A new folder and the stack of parts.

    ``left_over`` gets a line for each process that is still there in the end. Logs stay if it ``failed`` or an
    error is raised, everything if ``keep``. SIGTERM ends it as Ctrl-C does; SIGKILL at least leaves no service running.
    """
    folder = Path(tempfile.mkdtemp(prefix=prefix))
    # PostgreSQL runs as another user when we are root, and must be able to pass.
    folder.chmod(0o711)
    (folder / "logs").mkdir()
    scratch = Scratch(folder)
    raised, interrupted = True, False
    with terminated_as_interrupt() as signals:
        try:
            scratch.parts.enter_context(no_orphans())
            scratch.parts.enter_context(_kafka_log(folder / "logs" / KAFKA_LOG))
            yield scratch
            raised = False
        except KeyboardInterrupt:
            interrupted = True  # also by a signal that others have deferred, and recorded for themselves
            raise
        except Exception as error:
            if signals:
                raise KeyboardInterrupt from error
            raise
        finally:
            with uninterrupted():
                say("stopping everything")
                try:
                    scratch.parts.close()
                finally:
                    left_over += [f"{one.pid} {one.name()}" for one in psutil.Process().children(recursive=True)]
                    failed = scratch.failed or (raised and not (signals or interrupted))
                    _clear(folder, say, keep=keep, failed=failed)


@contextmanager
def _kafka_log(file: Path) -> Iterator[None]:
    """Within, the lines of this process's Kafka clients go to ``file``, which is made with the first one."""
    handler = logging.FileHandler(file, encoding="utf-8", delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
    kafka_logger.addHandler(handler)
    try:
        yield
    finally:
        kafka_logger.removeHandler(handler)
        handler.close()


def _remove_all_but_logs(folder: Path) -> None:
    """A database or a broker writes its log beside its data, and errors name that file."""
    for entry in list(folder.iterdir()):
        if entry.is_dir():
            shutil.rmtree(entry)
        elif entry.suffix != ".log":
            entry.unlink()
    if not any(folder.iterdir()):
        folder.rmdir()


def _clear(folder: Path, say: Callable[[str], None], *, keep: bool, failed: bool) -> None:
    """Remove the folder; keep the logs of what failed, and everything if asked to."""
    if keep:
        say(f"kept: {folder}")
        return
    if not failed:
        shutil.rmtree(folder)
        return
    for entry in folder.iterdir():
        if entry.name == "logs":
            continue
        if entry.is_dir():
            _remove_all_but_logs(entry)
        else:
            entry.unlink()
    say(f"the services' logs are kept in {folder / 'logs'}")
