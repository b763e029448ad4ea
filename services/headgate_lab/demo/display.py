"""What a user sees while the demo runs: what is done, line by line, and below it the tables as the log knows them.

On a terminal what is waited for turns a spinner, and the tables are redrawn in place; elsewhere a stage is one line,
and the tables are a line now and then, so that a CI log stays readable.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Final

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from headgate_lab.demo.load import ShopLoad
from headgate_lab.demo.tables import RowRate, TableView, views
from headgate_lab.demo.watch import Watch

REDRAWS_PER_SECOND: Final = 2.0
SPINS_PER_SECOND: Final = 8.0
LINE_EVERY_SECONDS: Final = 10.0
RATE_OVER_SECONDS: Final = 2.0
"""A rate over less jumps with every batch."""

JOIN_SECONDS_MAX: Final = 5.0

OWNER_SILENT_SECONDS: Final = 15.0
"""An owner announces itself every second; past this the tables shown may long be otherwise."""

Tell = Callable[[str], None]
"""Takes how far a stage is, as often as one likes."""


class Display:
    """Prints to one console: standard output for people, standard error when that is for a program."""

    def __init__(self, *, to_stderr: bool) -> None:
        self.console = Console(stderr=to_stderr, highlight=False)
        self._began = time.monotonic()

    def say(self, message: str) -> None:
        """A message with the seconds since the beginning. A terminal gets whole words, indented below the first."""
        seconds = Text(f"{time.monotonic() - self._began:6.1f} s", style="dim")
        if not self.console.is_terminal:
            self.console.print(seconds + Text(f"  {message}", style="not dim"), soft_wrap=True)
            return
        columns = Table.grid(padding=(0, 2))
        columns.add_column(no_wrap=True)
        columns.add_column()
        columns.add_row(seconds, Text(message))
        self.console.print(columns)

    def head(self, message: str) -> None:
        """A heading."""
        self.console.print(Text(message, style="bold cyan"), soft_wrap=True)

    def fail(self, message: str) -> None:
        """What went wrong."""
        self.console.print(Text("failed: ", style="bold red") + Text(message, style="not bold"), soft_wrap=True)

    @contextmanager
    def stage(self, what: str) -> Iterator[Tell]:
        """Within, ``what`` is being waited for: shown with its time while it lasts, or in one line at its start."""
        began, detail = time.monotonic(), ""

        def tell(text: str) -> None:
            nonlocal detail
            detail = text

        if not self.console.is_terminal:
            self.say(what)
            yield tell
            return
        spinner = Spinner("dots")

        def shown() -> Spinner:
            far = f": {detail}" if detail else ""
            spinner.update(text=Text(f"{what}, {time.monotonic() - began:.0f} s{far}"))
            return spinner

        with Live(get_renderable=shown, console=self.console, refresh_per_second=SPINS_PER_SECOND, transient=True):
            yield tell
        self.say(f"{what}: {time.monotonic() - began:.1f} s")

    @contextmanager
    def status(self, watch: Watch, load: ShopLoad) -> Iterator[None]:
        """Within, the feed's tables are shown as they are."""
        status = _Status(watch, load)
        if self.console.is_terminal:
            with Live(
                get_renderable=status.table,
                console=self.console,
                refresh_per_second=REDRAWS_PER_SECOND,
                transient=True,
            ):
                yield
            return
        with _every(LINE_EVERY_SECONDS, lambda: self.say(status.line())):
            yield


class _Status:
    def __init__(self, watch: Watch, load: ShopLoad) -> None:
        self._watch = watch
        self._load = load
        self._rate = RowRate()
        self._shown_rate = 0.0
        self._looked_at = float("-inf")

    def table(self) -> RenderableType:
        """The tables, and a line below."""
        found = self._views()
        if not found:
            return Text(self.line())
        drawn = Table(box=None, pad_edge=False, header_style="bold")
        for column in ("table", "state", "agent", "epoch", "rows", "lag"):
            drawn.add_column(column, justify="right" if column in ("rows", "lag") else "left", no_wrap=True)
        for view in found:
            style = "green" if view.replicating else "yellow"
            role = view.role
            drawn.add_row(
                view.span,
                Text("replicating" if view.replicating else view.state, style=style),
                role.agent if role else "-",
                str(role.epoch) if role else "-",
                "-" if view.rows is None else str(view.rows),
                "-" if view.lag_ms is None else f"{view.lag_ms / 1000:.1f} s",
            )
        return Group(drawn, Text(self._summary(), style="italic"))

    def line(self) -> str:
        """The same in one line."""
        found = self._views()
        if not found:
            return f"no feed yet; {self._load.counts().total()} changes written to the source"
        agents = sorted({view.role.agent for view in found if view.role is not None})
        replicating = sum(view.replicating for view in found)
        on = f" on {', '.join(agents)}" if agents else ""
        return f"{replicating} of {len(found)} tables replicating{on}; {self._summary()}"

    def _views(self) -> list[TableView]:
        with self._watch.condition:
            return views(self._watch.seen.snapshot)

    def _summary(self) -> str:
        now = time.monotonic()
        if now - self._looked_at >= RATE_OVER_SECONDS:
            self._shown_rate = self._rate.look(self._watch.rows_applied())
            self._looked_at = now
        lags = [view.lag_ms for view in self._views() if view.lag_ms is not None]
        lag = f"lag {max(lags) / 1000:.1f} s" if lags else "no lag known yet"
        silent = self._owner_silent_seconds()
        nobody = f"; NO OWNER has announced itself for {silent:.0f} s" if silent > OWNER_SILENT_SECONDS else ""
        written = f"{self._load.counts().total()} changes written to the source"
        return f"{self._shown_rate:.0f} rows/s, {lag}, {written}{nobody}"

    def _owner_silent_seconds(self) -> float:
        with self._watch.condition:
            seen = self._watch.seen
            return time.monotonic() - seen.heard_at[seen.terms[-1].owner_rev] if seen.terms else 0.0


@contextmanager
def _every(seconds: float, action: Callable[[], None]) -> Iterator[None]:
    stopping = Event()

    def run() -> None:
        while not stopping.wait(seconds):
            action()

    thread = Thread(target=run, name="demo-display", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join(JOIN_SECONDS_MAX)
