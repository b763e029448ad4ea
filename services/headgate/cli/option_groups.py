"""Groups of options: what many commands take is declared once, as the fields of a struct.

A command names the struct as the type of one parameter. On the command line each field is an option of its own, at the
place of that parameter; the command is called with the struct.
"""

from collections.abc import Callable
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, TypeVar, get_type_hints

import msgspec
import typer
from msgspec import NODEFAULT
from msgspec.structs import fields

Command = TypeVar("Command", bound=Callable[..., Any])


class OptionGroup(msgspec.Struct, frozen=True):
    """Options that belong together: each field is annotated as a parameter of a command would be."""


class CommandGroup(typer.Typer):
    """Commands which may take groups of options."""

    def command(self, name: str | None = None, **further: Any) -> Callable[[Command], Command]:
        """Register the function below as a command; see typer.Typer.command."""
        register = super().command(name, **further)

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
