"""Prepares the executor's runtime beside a session (a Spark session takes 8 s, on a busy machine a minute).

A session heartbeats and reads along until then. One that ends before leaves the work to the next, and it continues.
"""

from collections.abc import Callable

from headgate.supervision.threads import BackgroundThread


class Warming:
    """Runs ``warm`` on a thread of its own whenever it is asked whether that is finished; one at a time."""

    def __init__(self, warm: Callable[[], None]) -> None:
        self._warm = warm
        self._thread: BackgroundThread | None = None
        self._error: BaseException | None = None

    def finished(self) -> bool:
        """Whether it has run since this last was true; begins if it does not run. Raises what ``warm`` has raised."""
        if self._thread is None:
            self._thread = BackgroundThread(self._run, name="headgate-warming")
            self._thread.start()
        if self._thread.is_alive():
            return False
        self._thread, error, self._error = None, self._error, None
        if error is not None:
            raise error
        return True

    def _run(self) -> None:
        try:
            self._warm()
        except BaseException as error:  # noqa: BLE001 - carried to the session's thread, which raises it
            self._error = error
