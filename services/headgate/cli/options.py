"""Options that many commands share, and what they lead to: settings, and a connection to the cluster's log.

A group of options is declared once, as the fields of a struct.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, TypeVar, get_type_hints

import msgspec
import typer
from msgspec import NODEFAULT
from msgspec.structs import fields
from typer.core import TyperCommand, TyperGroup

from headgate.app.cluster import opened_cluster
from headgate.cli.output import Output, errors_as
from headgate.config.settings import Settings, SettingsError
from headgate.eventlog.kafka import KafkaLog

Command = TypeVar("Command", bound=Callable[..., Any])


class OptionGroup(msgspec.Struct, frozen=True):
    """Options that belong together: each field is annotated as a parameter of a command would be."""


def _without_types_of_switches(parameters: list[Any]) -> list[Any]:
    """Parameters for a help page: an option that takes no value shows none."""
    for parameter in parameters:
        if getattr(parameter, "is_bool_flag", False) and parameter.metavar is None:
            parameter.metavar = ""
    return parameters


class _Command(TyperCommand):
    def get_params(self, ctx: Any) -> list[Any]:
        return _without_types_of_switches(super().get_params(ctx))


class HelpfulGroup(TyperGroup):
    """A group whose help shows no types of options that take no value."""

    def get_params(self, ctx: Any) -> list[Any]:
        """See the library's."""
        return _without_types_of_switches(super().get_params(ctx))


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


Format = Annotated[
    Output, typer.Option("--output", "-o", callback=errors_as, help="table for people, json or yaml for programs")
]
Watch = Annotated[
    float | None,
    typer.Option("--watch", "-w", metavar="SECONDS", min=0.2, help="show it again every so often, until Ctrl-C"),
]
Timeout = Annotated[float, typer.Option("--timeout", min=0.1, help="seconds to wait for the outcome")]


class ClusterOptions(OptionGroup, frozen=True):
    """Which cluster of Headgate, on which brokers, and how to reach them."""

    bootstrap: Annotated[
        str | None, typer.Option("--bootstrap", help="Kafka brokers, host:port with commas [HEADGATE_BOOTSTRAP]")
    ] = None
    cluster: Annotated[
        str | None, typer.Option("--cluster", help="prefix of the control topics [HEADGATE_CLUSTER]")
    ] = None
    kafka_property: Annotated[
        list[str] | None,
        typer.Option("--kafka-property", "-X", metavar="NAME=VALUE", help="a librdkafka property [HEADGATE_KAFKA__…]"),
    ] = None


def cluster_flags(given: ClusterOptions) -> dict[str, Any]:
    """The options as nested settings. Raises SettingsError."""
    kafka: dict[str, str] = {}
    for pair in given.kafka_property or ():
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise SettingsError(f"--kafka-property {pair!r}: write NAME=VALUE, as in security.protocol=SASL_SSL")
        kafka[name] = value
    return {"bootstrap": given.bootstrap, "cluster": given.cluster, "kafka": kafka}


@contextmanager
def connected(cluster: ClusterOptions) -> Iterator[tuple[Settings, KafkaLog]]:
    """The settings and the cluster's log, checked, for one command. Raises SettingsError, LogError."""
    with opened_cluster(cluster_flags(cluster)) as opened:
        yield opened
