"""What people see while tables are compared, on a terminal only."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from headgate.cli.output import Output
from headgate.verify.pace import RowLimit

__all__ = ["compared_rows"]


@contextmanager
def compared_rows(limit: RowLimit, output: Output) -> Iterator[Callable[[str, int], None]]:
    """Takes a table and how many more of its rows were compared; shows it, and keeps to the limit."""
    from rich.progress import BarColumn, Progress, TextColumn  # noqa: PLC0415 - it takes long to import

    from headgate.cli.rendering import console  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.completed:.0f} rows compared"))
    out = console(stderr=True)
    is_shown = out.is_terminal and output is Output.TABLE
    with Progress(*columns, console=out, disable=not is_shown, transient=True) as bar:
        task = bar.add_task("", total=None)
        now = ""

        def on_rows(table: str, rows: int) -> None:
            nonlocal now
            if table != now:
                now = table
                bar.reset(task, description=table, total=None)
            bar.advance(task, rows)
            limit.compared(rows)

        yield on_rows
