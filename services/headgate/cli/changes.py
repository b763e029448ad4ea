"""One convention for commands that change something (docs/adr/0095).

Every such command takes ``--dry-run``, which prints what would be done and changes nothing. A command that destroys
data, or does what cannot be undone, takes ``--yes`` as well. Without it the command asks on a terminal, and is refused
without one.

A function in this folder that writes takes a ``Permit``, and ``permitted`` is the only place that gives one.
"""

import sys
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

import typer

from headgate.app.exit_codes import CommandError, ExitCode
from headgate.cli.options import OptionGroup
from headgate.cli.output import Output, note, show_value

WOULD_BE_DONE: Final = "would be done"
"""What programs read as the status of a dry run."""


class ChangeOptions(OptionGroup, frozen=True):
    """Options of a command that changes something, which another command can change back."""

    dry_run: Annotated[bool, typer.Option("--dry-run", help="show what would be done, and change nothing")] = False


class Destruction(ChangeOptions, frozen=True):
    """Options of a command that destroys data, or does what cannot be undone."""

    yes: Annotated[bool, typer.Option("--yes", "-y", help="do not ask; needed where no terminal can be asked")] = False

    def only_if(self, destroys: bool) -> ChangeOptions:
        """These options, for a command that destroys something only in some of its forms."""
        return self if destroys else ChangeOptions(dry_run=self.dry_run)


class Permit:
    """A proof that the user has agreed to a change."""


def permitted(
    change: ChangeOptions,
    what: str,
    output: Output,
    facts: Mapping[str, Any] | None = None,
    *,
    check: Callable[[], object] | None = None,
) -> Permit | None:
    """The permit to do ``what`` (``delete feed shop``), after the user has agreed. None for a dry run, which is shown.

    ``facts`` are shown to programs. ``check`` finds out whether what is named exists, for a dry run and before the
    user is asked. The owner does that otherwise. Raises CommandError if the user does not agree, or cannot be asked.
    """
    if check is not None and (change.dry_run or _must_ask(change)):
        check()
    if change.dry_run:
        show_would(what, output, facts)
        return None
    return agreed(change, what)


def _must_ask(change: ChangeOptions) -> bool:
    """Whether the user has yet to agree."""
    return isinstance(change, Destruction) and not (change.dry_run or change.yes)


def check_can_agree(change: Destruction, what: str) -> None:
    """Refuse at once, instead of after long work, if no terminal can be asked. Raises CommandError."""
    if _must_ask(change) and not _can_be_asked():
        raise _nobody_to_ask(what)


def agreed(change: ChangeOptions, what: str) -> Permit | None:
    """As ``permitted``, for a command that shows its dry run itself."""
    if change.dry_run:
        return None
    if _must_ask(change):
        _confirm(what)
    return Permit()


def show_would(what: str, output: Output, facts: Mapping[str, Any] | None = None) -> None:
    """Print what a dry run would have done."""
    if output is Output.TABLE:
        note(f"would {what}; nothing was changed")
    else:
        show_value(output, {**(facts or {}), "status": WOULD_BE_DONE, "would": what})


def _can_be_asked() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()  # None if closed by `<&-`


def _nobody_to_ask(what: str) -> CommandError:
    return CommandError(
        ExitCode.NOT_CONFIRMED,
        f"this would {what}, which cannot be undone, and no terminal can be asked. Nothing was changed. Confirm it "
        "with --yes, or preview it with --dry-run",
    )


def _confirm(what: str) -> None:
    if not _can_be_asked():
        raise _nobody_to_ask(what)
    try:
        is_agreed = typer.confirm(f"{what[0].upper()}{what[1:]}? This cannot be undone.", err=True)
    except typer.Abort:
        is_agreed = False
    if not is_agreed:
        raise CommandError(ExitCode.NOT_CONFIRMED, "not confirmed, nothing was changed")
