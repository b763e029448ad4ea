"""Writers of a change log under a steady load: as threads of this process, or in processes of their own.

    python -m headgate_lab.benchmarks.generation_writers BOOTSTRAP CLUSTER SET FIRST COUNT KEYS PER_SECOND

Such a process prints "admitted" once all of its writers may write, writes until its standard input ends, and prints
how many changes are on the log. A change's value is the time at which it was given (monotonic seconds, which all
processes of a machine share).
"""

import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import closing
from typing import Final

import msgspec

from headgate.eventlog.kafka import KafkaLog
from headgate.eventlog.log import LogError
from headgate.generation import ChangeWriter
from headgate.generation.shell.tail import open_generation_log
from headgate.provisioning.killed import await_killed
from headgate_lab.benchmarks.generation_parts import WAIT_SECONDS
from headgate_lab.benchmarks.parts import BenchError

END_SECONDS_MAX: Final = 2 * WAIT_SECONDS
"""A write gives up after WAIT_SECONDS, and so does the flush at the end."""


class WritersLoad(msgspec.Struct, frozen=True):
    """Writers w<first> to w<first+count-1>, in turn, each with ``keys`` keys, ``per_second`` changes in all."""

    first: int
    count: int
    keys: int
    per_second: float


class WritersHere:
    """Threads of this process, which share one log."""

    def __init__(self, log: KafkaLog, name: str, load: WritersLoad) -> None:
        self._load = load
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._feed, daemon=True)
        self._written = 0
        self._wrong: LogError | None = None
        numbers = range(load.first, load.first + load.count)
        self._writers = [ChangeWriter(log, name, f"w{number}", wait_seconds=WAIT_SECONDS) for number in numbers]

    def start(self) -> None:
        """Wait until all are admitted, then write. Raises LogError."""
        for writer in self._writers:
            _ = writer.position
        self._thread.start()

    def stop(self) -> int:
        """Write no more; how many changes are on the log. Raises LogError, BenchError."""
        self._is_over.set()
        self._thread.join(END_SECONDS_MAX)
        if self._thread.is_alive():
            raise BenchError(f"the writers have not ended within {END_SECONDS_MAX:g} s: look at the broker's log")
        if self._wrong is not None:
            raise self._wrong
        return self._written

    def close(self) -> None:
        """Idempotent."""
        self._is_over.set()
        for writer in self._writers:
            writer.close()

    def _feed(self) -> None:
        begun = time.monotonic()
        try:
            while not self._is_over.is_set():
                ahead = begun + self._written / self._load.per_second - time.monotonic()
                if ahead > 0:
                    self._is_over.wait(ahead)
                    continue
                position, number = divmod(self._written, len(self._writers))
                key = b"%d-%d" % (self._load.first + number, position % self._load.keys)
                self._writers[number].write(key, repr(time.monotonic()).encode(), position)
                self._written += 1
            for writer in self._writers:
                writer.flush()
        except LogError as error:
            self._wrong = error


class WritersApart:
    """The same in processes, which share the writers and the rate."""

    def __init__(self, bootstrap: str, cluster: str, name: str, loads: Sequence[WritersLoad]) -> None:
        module = [sys.executable, "-m", "headgate_lab.benchmarks.generation_writers", bootstrap, cluster, name]
        self._processes = [
            subprocess.Popen(
                [*module, *(str(number) for number in msgspec.structs.astuple(load))],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
            )
            for load in loads
        ]

    def start(self) -> None:
        """Wait until all are admitted; they write by themselves. Raises BenchError."""
        for process in self._processes:
            self._line(process)

    def stop(self) -> int:
        """Let all end; how many changes are on the log. Raises BenchError."""
        for process in self._processes:
            if process.stdin is not None:
                process.stdin.close()
        return sum(int(self._line(process)) for process in self._processes)

    def close(self) -> None:
        """Idempotent."""
        for process in self._processes:
            process.kill()
            await_killed(process, "a process of writers")

    def _line(self, process: subprocess.Popen[str]) -> str:
        line = "" if process.stdout is None else process.stdout.readline()
        if not line:  # it has closed its end, so it has ended or does so now
            raise BenchError(f"a process of writers has ended with code {process.wait(END_SECONDS_MAX)}")
        return line


def main(*given: str) -> None:
    """See the module's docstring."""
    bootstrap, cluster, name, first, count, keys, per_second = given
    load = WritersLoad(int(first), int(count), int(keys), float(per_second))
    with (
        closing(open_generation_log(bootstrap, cluster)) as log,
        closing(WritersHere(log, name, load)) as writers,
    ):
        writers.start()
        sys.stdout.write("admitted\n")
        sys.stdout.flush()
        sys.stdin.read()
        sys.stdout.write(f"{writers.stop()}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
