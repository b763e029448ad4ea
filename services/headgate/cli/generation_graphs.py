"""``headgate generation graph``: a change log's ring, unrolled, one line per generation; also as SVG or HTML.

The line of a generation is its ring from the smallest token to the largest. A stream is drawn below those whose tokens
it took over, so the lines under each other are the lineage: a cut is a split, a gap closed is a merge, and what a
switch left alone is dimmed.
"""

from collections.abc import Mapping
from io import StringIO
from itertools import groupby
from pathlib import Path
from typing import Annotated, Final

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from headgate.app.exit_codes import CommandError, ExitCode
from headgate.cli.generation_requests import SetName, opened, record_of, waits_for
from headgate.cli.options import ClusterOptions
from headgate.cli.output import note
from headgate.generation.core.ranges import FIRST_TOKEN, LAST_TOKEN, LogMap
from headgate.records.generation import GenerationRecorded, SetRecorded

COLUMNS: Final = ("grey11 on sky_blue2", "grey11 on sandy_brown")
"""Neighbours differ; the choice between the two has no meaning."""

KEPT: Final = ("grey30 on grey74", "grey30 on grey58")
"""The same for a stream that an earlier generation has opened."""

BESIDE_COLUMNS: Final = 44
"""The columns beside a ring in a terminal: number, phase, streams, waiting."""

WIDTH_MIN: Final = 16
WIDTH_MAX: Final = 400


def graph(
    name: SetName,
    *,
    width: Annotated[
        int | None,
        typer.Option(
            "--width", min=WIDTH_MIN, max=WIDTH_MAX, help="columns of the ring", show_default="as the terminal"
        ),
    ] = None,
    svg: Annotated[Path | None, typer.Option("--svg", help="write it to this file, as SVG")] = None,
    html: Annotated[Path | None, typer.Option("--html", help="write it to this file, as HTML")] = None,
    cluster: ClusterOptions,
) -> None:
    """Draw the ring of every generation that is not retired.

    `headgate generation lineage -o json` has the same for programs.

    Example: headgate generation graph orders --svg orders.svg
    """
    with opened(name, cluster) as (_, tail):
        record = record_of(tail, name)
        readers = {reader: said.read_epoch for reader, said in tail.state.readers.get(name, {}).items()}
        maps = {each.epoch: tail.state.map_of(name, each.epoch) for each in record.generations}
    columns = width or max(WIDTH_MIN, min(WIDTH_MAX, Console().width - BESIDE_COLUMNS))
    drawn = draw(name, record, maps, readers, columns)
    if svg is None and html is None:
        Console().print(drawn)
        return
    recorded = Console(record=True, width=columns + BESIDE_COLUMNS, file=StringIO(), force_terminal=True)
    recorded.print(drawn)
    for path, text in ((svg, recorded.export_svg(title=name, clear=False)), (html, recorded.export_html(clear=False))):
        if path is not None:
            _write(path, text)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(ExitCode.SETTING, f"cannot write the graph to {path}: {error.strerror}") from error
    note(f"written: {path}")


def draw(name: str, record: SetRecorded, maps: Mapping[int, LogMap], readers: Mapping[str, int], columns: int) -> Table:
    """A line per generation, oldest first, with its ring in ``columns`` columns; below, how far readers are."""
    said = [f"reader {reader} has read what switches up to {epoch} closed" for reader, epoch in sorted(readers.items())]
    crowded = [str(epoch) for epoch, log in maps.items() if len(log.streams) > columns]
    if crowded:
        said.append(f"generation {', '.join(crowded)}: more streams than columns; each column shows that in its middle")
    table = Table(title=f"{name}: {record.topic}", caption="\n".join(said), box=None, pad_edge=False)
    for heading in ("generation", "phase", "streams", "ring, from the smallest token to the largest", "waits for"):
        table.add_column(heading, no_wrap=heading != "waits for", overflow="fold")
    for each in record.generations:
        log = maps[each.epoch]
        waiting = ", ".join(waits_for(record, each, readers))
        table.add_row(str(each.epoch), each.phase.value, str(len(log.streams)), ring_of(each, log, columns), waiting)
    return table


def ring_of(generation: GenerationRecorded, log: LogMap, columns: int) -> Text:
    """One ring: each stream as wide as its range, with its partition where that fits."""
    step = (LAST_TOKEN - FIRST_TOKEN) / columns
    middles = [log.stream_of(FIRST_TOKEN + int((column + 0.5) * step)) for column in range(columns)]
    drawn = Text()
    for number, (_, group) in enumerate(groupby(middles, key=lambda stream: stream.id)):
        cells = list(group)
        is_new = cells[0].generation == generation.epoch
        drawn.append(_label(f"p{cells[0].partition}", len(cells)), (COLUMNS if is_new else KEPT)[number % 2])
    return drawn


def _label(text: str, width: int) -> str:
    return text.center(width) if len(text) <= width else " " * width
