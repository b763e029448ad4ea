"""Groups of commands and groups of options. A group of options is declared once, as the fields of a struct.

A command that needs much is imported when it is called: help and completion list it without that.
"""

from collections.abc import Callable, Mapping
from functools import cache, wraps
from inspect import Parameter, Signature, signature
from pkgutil import resolve_name
from typing import Any, ClassVar, Final, NamedTuple, TypeVar, get_type_hints

import msgspec
import typer
from msgspec import NODEFAULT
from msgspec.structs import fields
from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

from headgate.app.command_error import CommandError, ExitCode
from headgate.cli.typed_values import keep_typed
from headgate.config.wording import one_of

Command = TypeVar("Command", bound=Callable[..., Any])


class OptionGroup(msgspec.Struct, frozen=True):
    """Options that belong together: each field is annotated as a parameter of a command would be."""


def _ours(parameters: list[Any]) -> list[Any]:
    """Parameters whose help shows no type where no value is taken, and whose typed values are not converted."""
    for parameter in parameters:
        keep_typed(parameter)
        if getattr(parameter, "is_bool_flag", False) and parameter.metavar is None:
            parameter.metavar = ""
    return parameters


class _Command(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return _ours(super().get_params(ctx))


class HelpfulGroup(TyperGroup):
    """A group whose help shows no types of options that take no value, and that names the nearest command."""

    order: ClassVar[tuple[str, ...]] = ()
    """Commands as they are listed, most used first. Others follow as they were registered."""

    def list_commands(self, ctx: Any) -> list[str]:
        """See the library's, which lists groups last."""
        known = super().list_commands(ctx)
        return [*(name for name in self.order if name in known), *(name for name in known if name not in self.order)]

    def get_params(self, ctx: Any) -> list[Any]:
        """See the library's."""
        return _ours(super().get_params(ctx))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """See the library's, which does not know commands that are not imported yet.

        Shell completion (``resilient_parsing``) resolves what is typed so far: a typo completes to nothing.
        """
        if not ctx.resilient_parsing and args[0].isidentifier() and self.get_command(ctx, args[0]) is None:
            raise typer.BadParameter(f"command {one_of(args[0], self.list_commands(ctx))}", ctx)
        return super().resolve_command(ctx, args)


class CommandGroup(typer.Typer):
    """Commands which may take groups of options. Only the top group has options for completion."""

    def __init__(self, *, add_completion: bool = False, cls: type[TyperGroup] = HelpfulGroup, **further: Any) -> None:
        super().__init__(add_completion=add_completion, cls=cls, **further)

    def command(self, name: str | None = None, **further: Any) -> Callable[[Command], Command]:
        """Register the function below as a command; see typer.Typer.command."""
        register = super().command(name, cls=_Command, **further)

        def registered(command: Command) -> Command:
            register(_with_options(command))
            return command

        return registered


def _with_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The command with the fields of its groups in the places of the groups."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, type[OptionGroup]] = {name: hint for name, hint in hints.items() if _is_group(hint)}
    parameters = [
        option
        for name, parameter in signature(command).parameters.items()
        for option in (_options(groups[name]) if name in groups else [parameter.replace(annotation=hints[name])])
    ]

    @wraps(command)
    def call(**given: Any) -> Any:
        made = {
            name: group(**{field: given.pop(field) for field in group.__struct_fields__})
            for name, group in groups.items()
        }
        return command(**given, **made)

    call.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    call.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    # The library keeps the line breaks of our sources, which are not where a terminal's are.
    call.__doc__ = "\n\n".join(" ".join(part.split()) for part in (command.__doc__ or "").split("\n\n"))
    return call


def _is_group(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, OptionGroup)


def _options(group: type[OptionGroup]) -> list[Parameter]:
    hints = get_type_hints(group, include_extras=True)
    return [
        Parameter(
            field.name,
            Parameter.KEYWORD_ONLY,
            default=Parameter.empty if field.default is NODEFAULT else field.default,
            annotation=hints[field.name],
        )
        for field in fields(group)
    ]


ANY_ARGUMENTS: Final = {"allow_extra_args": True, "ignore_unknown_options": True}


class Late(NamedTuple):
    """A command or a group that is imported when it is called. ``help``: the line that lists it."""

    place: str
    help: str
    panel: str | None = None


class LateGroup(HelpfulGroup):
    """A group some of whose commands are imported late. They are listed first, in this order."""

    late: ClassVar[Mapping[str, Late]] = {}

    _is_listing = False

    def list_commands(self, ctx: Any) -> list[str]:
        """See the library's."""
        return [*self.late, *super().list_commands(ctx)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """See the library's. While commands are only listed, a late one is not imported."""
        late = self.late.get(cmd_name)
        if late is None:
            return super().get_command(ctx, cmd_name)
        return listed(cmd_name, late) if self._is_listing else _imported(cmd_name, late)

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """See the library's."""
        self._is_listing = True
        try:
            super().format_help(ctx, formatter)
        finally:
            self._is_listing = False

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        """See the library's."""
        self._is_listing = True
        try:
            return super().shell_complete(ctx, incomplete)
        finally:
            self._is_listing = False


def listed(name: str, late: Late) -> TyperCommand:
    """A command that is not imported yet: its line in a list, and its place there."""
    return TyperCommand(name, help=late.help, rich_help_panel=late.panel)


@cache
def _imported(name: str, late: Late) -> Any:
    """Kept, because the library asks several times, and making a command takes time."""
    try:
        found = resolve_name(late.place)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] == "headgate":
            raise
        return command_of(name, _incomplete(error.name), late.panel, takes_anything=True)
    return command_of(name, found, late.panel)


def command_of(name: str, found: Any, panel: str | None = None, *, takes_anything: bool = False) -> Any:
    """A function, or a group of commands, under the name it is called by."""
    if not isinstance(found, typer.Typer):
        alone = CommandGroup()
        alone.command(name, context_settings=ANY_ARGUMENTS if takes_anything else None)(found)
        found = alone
    command: Any = get_command(found)
    command.name = name
    command.rich_help_panel = panel
    return command


def _incomplete(package: str) -> Callable[[], None]:
    """A command that cannot be imported: help lists it, and running it names the missing package."""

    def incomplete() -> None:
        """A Python package that this needs is not installed."""
        raise CommandError(
            ExitCode.SETTING,
            f"the Python package {package} is not installed. Install Headgate again with its dependencies (in a clone: "
            "make .venv/.ready)",
        )

    return incomplete
