"""A program with a Spark of its own that a bench asks over pipes: one line of JSON each way, for each run."""

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Final, Self

import psutil

from headgate_lab.benchmarks.cpu import tree
from headgate_lab.benchmarks.parts import BenchError

__all__ = ["PipedProgram"]

END_SECONDS_MAX: Final = 60.0
"""Spark's end on a slow machine; then the process and its children are killed."""


class PipedProgram:
    """The program, running from its first answer, which shows that it is ready, to the end of the block."""

    def __init__(self, command: Sequence[str], answers_begin: str, what: str, settings: Mapping[str, str]) -> None:
        """Nothing runs yet.

        ``answers_begin``: before each of its answers, because Spark writes to the same stream now and then. ``what``:
        its name in errors. ``settings``: variables beside ours.
        """
        self._command = command
        self._answers_begin = answers_begin
        self._what = what
        self._environment = {**os.environ, **settings}
        self._process: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=self._environment
        )
        self._answer()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        process = self._process
        if process is None:
            return
        born = tree(process.pid)
        assert process.stdin is not None  # noqa: S101 - a pipe was asked for
        process.stdin.close()
        try:
            process.wait(END_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            for each in born:
                each.kill()
            process.wait(END_SECONDS_MAX)
        assert process.stdout is not None  # noqa: S101 - a pipe was asked for
        process.stdout.close()

    def processes(self) -> list[psutil.Process]:
        """The program itself first, then its JVM and its Python workers."""
        return [] if self._process is None else tree(self._process.pid)

    def ask(self, asked: Sequence[object]) -> str:
        """Its answer. Raises BenchError if it has ended."""
        assert self._process is not None  # noqa: S101 - entered
        assert self._process.stdin is not None  # noqa: S101 - a pipe was asked for
        self._process.stdin.write(json.dumps(asked, default=str) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> str:
        assert self._process is not None  # noqa: S101 - entered
        assert self._process.stdout is not None  # noqa: S101 - a pipe was asked for
        for line in self._process.stdout:
            if line.startswith(self._answers_begin):
                return line.removeprefix(self._answers_begin).strip()
        raise BenchError(f"{self._what} ended; its output is above")
