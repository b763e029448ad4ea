"""What people see while a command waits: a spinner, what it waits for, and the time. On a terminal only.

It appears after a second, so that a command that is answered at once shows nothing.
"""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event
from typing import TYPE_CHECKING, Final

from headgate.cli.output import is_for_people
from headgate.supervision.threads import BackgroundThread

if TYPE_CHECKING:
    from rich.progress import Progress

__all__ = ["OnStatus", "waiting"]

QUIET_SECONDS: Final = 1.0
"""Most commands have ended by then; a person who sees nothing for longer wonders whether anything happens."""

DRAWN_SECONDS_MAX: Final = 5.0
"""For the first drawing, which imports its library. A command that is done does not wait for longer."""

OnStatus = Callable[[str], None]
"""Takes what the other side reports about the wait."""


@contextmanager
def waiting(for_what: str, quiet_seconds: float = QUIET_SECONDS) -> Iterator[OnStatus]:
    """Show ``for_what`` while the body runs, with the latest status behind it. Nothing in a pipe or for programs."""
    if not (is_for_people() and sys.stderr.isatty()):
        yield _ignored
        return
    spinner, ended = _Spinner(for_what), Event()
    drawing = BackgroundThread(_show_later, spinner, ended, quiet_seconds, name="spinner")
    drawing.start()
    try:
        yield spinner.report
    finally:
        ended.set()
        drawing.join(DRAWN_SECONDS_MAX)  # it may just be starting, and must not draw over what is printed next
        spinner.end()


def _show_later(spinner: "_Spinner", ended: Event, quiet_seconds: float) -> None:
    if not ended.wait(quiet_seconds):
        spinner.show()


def _ignored(_status: str) -> None:
    """No terminal shows it."""


class _Spinner:
    """It is shown by another thread than that which reports and ends it."""

    def __init__(self, for_what: str) -> None:
        self._began = time.monotonic()
        self._text = f"Waiting for {for_what}"
        self._status = ""
        self._progress: Progress | None = None

    def show(self) -> None:
        from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn  # noqa: PLC0415 - as in output

        from headgate.cli.rendering import console  # noqa: PLC0415

        columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
        progress = Progress(*columns, console=console(stderr=True), transient=True, get_time=time.monotonic)
        progress.add_task(self._shown())
        progress.tasks[0].start_time = self._began
        progress.start()
        self._progress = progress

    def report(self, status: str) -> None:
        self._status = status
        if self._progress is not None:
            self._progress.update(self._progress.task_ids[0], description=self._shown())

    def end(self) -> None:
        if self._progress is not None:
            self._progress.stop()

    def _shown(self) -> str:
        return f"{self._text}: {self._status}" if self._status else self._text
