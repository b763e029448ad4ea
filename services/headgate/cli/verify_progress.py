"""What people see while tables are compared, on a terminal only."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from headgate.cli.output import Output
from headgate.verify.pace import RowLimit

__all__ = ["compared_rows"]

OnRows = Callable[[str, int], None]


@contextmanager
def compared_rows(limit: RowLimit, output: Output) -> Iterator[OnRows]:
    """Takes a table and how many more of its rows were compared; shows it, and keeps to the limit."""
    if output is not Output.TABLE or not sys.stderr.isatty():
        yield lambda _table, rows: limit.compared(rows)
        return
    from rich.progress import BarColumn, Progress, TextColumn  # noqa: PLC0415 - only who watches needs a bar

    from headgate.cli.rendering import console  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:.0f} rows compared"))
    with Progress(*columns, console=console(stderr=True), transient=True) as bar:
        task = bar.add_task("", total=None)
        shown = ""

        def on_rows(table: str, rows: int) -> None:
            nonlocal shown
            if table != shown:
                shown = table
                bar.reset(task, description=table, total=None)
            bar.advance(task, rows)
            limit.compared(rows)

        yield on_rows
