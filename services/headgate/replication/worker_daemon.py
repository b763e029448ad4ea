"""The process that forks Spark's Python workers: Spark's own daemon, without the delays of each task.

A lane runs a job per batch, several a second, so what every task pays before its first row counts (docs/adr/0018):

- Spark's JVM writes a task in two pieces and holds the second one back until the first is acknowledged (Nagle), while
  the worker's kernel delays its acknowledgement for 40 ms in case there is an answer to send it with. Here what has
  been read is acknowledged at once.
- After every task the daemon's loop has the cyclic collector look at all that a worker has ever imported. Here that
  is imported before the fork and set apart (``gc.freeze``): not looked at, shared by all workers, and there at once.

Spark starts it by ``spark.python.daemon.module``, on this machine only: executors elsewhere may not have our package
yet when their daemon starts.
"""

import gc
import io
import socket
import sys
from collections.abc import Callable
from typing import Any, BinaryIO

import pyarrow as pa
from pyspark import daemon

from headgate.config.plugs import FORMATS, SINKS
from headgate.replication import task
from headgate.replication.archives import forget_archives


class PromptReader(io.RawIOBase):
    """The reading side of a connected TCP socket, each piece acknowledged as soon as it is read."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: Any) -> int:
        """See io.RawIOBase. Raises OSError."""
        count = self._connection.recv_into(buffer)
        if sys.platform == "linux":  # other kernels do not have this setting
            # Not a lasting one: the kernel goes back to delaying as soon as we have answered something.
            self._connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 1)
        return count


def prompt(main: Callable[[BinaryIO, BinaryIO], None]) -> Callable[[BinaryIO, BinaryIO], None]:
    """A worker's ``main`` that acknowledges promptly. Nothing may have been read ahead into its first argument."""

    def run(infile: BinaryIO, outfile: BinaryIO) -> None:
        with socket.socket(fileno=socket.dup(infile.fileno())) as connection:
            main(io.BufferedReader(PromptReader(connection), io.DEFAULT_BUFFER_SIZE), outfile)

    return run


def serve() -> None:
    """Fork workers until Spark closes standard input."""
    assert callable(task.apply)  # noqa: S101 - imported for those who are forked from here
    FORMATS.load_own()
    SINKS.load_own()
    # pyarrow imports pandas with the first array that it makes: 34 000 objects, at which the collector would look after
    # every task for 16 ms if they came after the fork.
    pa.array([], pa.binary())
    daemon.worker_main = prompt(daemon.worker_main)
    forget_archives()
    gc.collect()
    gc.freeze()
    daemon.manager()


if __name__ == "__main__":
    serve()
