"""How findings are shown: a line for each check, and below it the lines that fix it, ready to be typed."""

from collections.abc import Sequence
from typing import Final

import msgspec
import typer
from rich.console import Console
from rich.text import Text

from headgate.app.exit_codes import ExitCode
from headgate.capture.finding import CaptureFinding, FixIn, State, is_wrong
from headgate.cli.output import Output, note, show_value
from headgate.cli.rendering import console, wrapped
from headgate.records.name_lists import number_of

_STYLES: Final = {State.OK: "green", State.WARNING: "yellow", State.PENDING: "cyan", State.WRONG: "bold red"}
_INDENT: Final = " " * 9
"""Wider than the longest state and a blank, so that a fix is indented below its finding."""


def show_findings(findings: Sequence[CaptureFinding], output: Output) -> None:
    """Show them, and end with CHECK_FAILED if one of them is wrong. Raises typer.Exit."""
    wrong = sum(finding.state is State.WRONG for finding in findings)
    warnings = sum(finding.state is State.WARNING for finding in findings)
    pending = sum(finding.state is State.PENDING for finding in findings)
    if output is Output.TABLE:
        out = console()
        for finding in findings:
            out.print(_lines(finding, out))
        later = f", {pending} pending" if pending else ""
        checks, counted = number_of(len(findings), "check"), number_of(warnings, "warning")
        note(f"{checks}, {wrong} wrong, {counted}{later}")
    else:
        counts = {"wrong": wrong, "warnings": warnings, "pending": pending}
        show_value(output, {**counts, "checks": msgspec.to_builtins(list(findings))})
    if is_wrong(findings):
        raise typer.Exit(int(ExitCode.CHECK_FAILED))


def _lines(finding: CaptureFinding, out: Console) -> Text:
    text = Text()
    text.append(f"{finding.state.value:<{len(_INDENT)}}", _STYLES[finding.state])
    text.append(finding.check, "bold")
    text.append(f" {finding.subject}: {finding.says}" if finding.subject else f": {finding.says}")
    text = wrapped(text, out)
    if finding.fix_in is FixIn.OPTION_FILE:
        text.append(f"\n{_INDENT}In the server's option file, below [mysqld]:")
    for line in finding.fix:
        text.append(f"\n{_INDENT}  {line}", "cyan")
    if finding.then:
        text.append(f"\n{_INDENT}{finding.then}.")
    return text
