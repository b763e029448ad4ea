"""A streaming query whose micro-batches are numbers, for work that is not in a topic: tasks read it themselves.

Each micro-batch has as many numbers as tasks run at once (Spark's source ``rate-micro-batch``). What a number stands
for is the caller's, and so is how far the work is: Spark's own progress is never the truth.
"""

import shutil
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession

__all__ = ["run_numbered"]

POLL_SECONDS: Final = 0.1


class _Batches:
    """The query's micro-batches, on its own thread, until one of them reports that it was the last."""

    def __init__(self, serve: Callable[[DataFrame], bool]) -> None:
        self.over = threading.Event()
        self.error: BaseException | None = None
        self._serve = serve
        self._ended = False
        self._running = threading.Lock()

    def end(self) -> None:
        """No batch begins any more; one that is under way is waited for."""
        self._ended = True
        with self._running:
            pass

    def run(self, numbers: DataFrame, _batch: int) -> None:
        """One micro-batch."""
        with self._running:
            if self._ended or self.over.is_set():
                return
            try:
                if not self._serve(numbers):
                    self.over.set()
            except Exception as error:  # noqa: BLE001 - handed to the caller, where Spark would make a text of it
                self.error = error
                self.over.set()


def run_numbered(
    session: SparkSession,
    name: str,
    tasks: int,
    *,
    scratch: Path,
    serve: Callable[[DataFrame], bool],
    is_over: Callable[[], bool],
) -> Exception | None:
    """Give each micro-batch of ``tasks`` numbers to ``serve`` until it answers False, or ``is_over``.

    Returns why the query ended by itself, if it did. Raises what ``serve`` does, PySparkException, Py4JError, OSError.
    """
    batches = _Batches(serve)
    folder = Path(tempfile.mkdtemp(prefix="copy-", dir=scratch))
    ended: Exception | None = None
    try:
        numbers = session.readStream.format("rate-micro-batch").options(rowsPerBatch=tasks, numPartitions=tasks)
        stream = numbers.load().select("value").writeStream.queryName(name)
        query = stream.option("checkpointLocation", folder.as_uri()).foreachBatch(batches.run).start()
        try:
            while not (batches.over.wait(POLL_SECONDS) or is_over()) and query.isActive:
                pass
            batches.end()
        finally:
            query.stop()
        if not batches.over.is_set():
            ended = query.exception()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if batches.error is not None:
        raise batches.error
    return ended
