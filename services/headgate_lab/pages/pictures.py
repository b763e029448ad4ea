"""Pictures of a terminal: drawn from recordings of real output, without fonts or scripts from the network.

A recording is what a command wrote to its terminal::

    make record NAME=why COMMAND="headgate why shop"

Its first line is the command that the picture shows.
"""

from io import StringIO
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.terminal_theme import TerminalTheme
from rich.text import Text

FOLDER: Final = Path(__file__).parents[3] / "docs" / "pictures"

COLUMNS: Final = 100
"""As wide as the text beside it."""

_THEME: Final = TerminalTheme(
    background=(250, 250, 250),
    foreground=(36, 41, 47),
    normal=[
        (36, 41, 47), (180, 35, 24), (26, 127, 55), (154, 103, 0),
        (9, 105, 218), (130, 80, 223), (27, 124, 131), (110, 119, 129),
    ],
)  # fmt: skip
"""Dark on light, with enough contrast on a light and on a dark page."""

_FORM: Final = """\
<svg class="terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg" role="img">
<style>
.{unique_id}-matrix {{
  font-family: ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace;
  font-size: {char_height}px; line-height: {line_height}px; white-space: pre;
}}
.{unique_id}-title {{ font: bold 18px sans-serif; }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal">
<rect x="0" y="0" width="{terminal_width}" height="{terminal_height}" />
</clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix" xml:space="preserve">
{matrix}
</g>
</g>
</svg>
"""


def names() -> list[str]:
    """The names of the recordings in docs/pictures."""
    return sorted(path.stem for path in FOLDER.glob("*.ansi"))


def picture(name: str) -> str:
    """The SVG of a recording. Raises OSError if the recording does not exist."""
    shown, _, output = (FOLDER / f"{name}.ansi").read_text(encoding="utf-8").partition("\n")
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text(f"$ {shown}", style="bold"))
    console.print(Text.from_ansi(output.rstrip()))
    drawn = console.export_svg(title="", theme=_THEME, code_format=_FORM, unique_id=f"terminal-{name}")
    # rich separates texts by blanks that do not break, which some viewers have no glyph for in a fixed width.
    return "\n".join(line.rstrip() for line in drawn.splitlines()) + "\n"
