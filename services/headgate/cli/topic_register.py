"""``headgate topic register``: make control records readable by tools that know a schema registry.

Other commands of ``topic`` need neither registries nor feeds, so what is known of them is imported by the command.
"""

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from headgate.cli.changes import ChangeOptions, Permit, agreed
from headgate.cli.connection_names import complete_registries
from headgate.cli.options import Format
from headgate.cli.output import Output, note, show_rows
from headgate.cli.waiting import waiting

if TYPE_CHECKING:
    from headgate.app.schema_registration import Registered
    from headgate.config.registry_spec import RegistryOptions, RegistrySpec

Registry = Annotated[
    str,
    typer.Option(
        "--registry",
        metavar="NAME|URL",
        help="a registry of HEADGATE_CONNECTIONS, or the URL of one that needs no password",
        autocompletion=complete_registries,
    ),
]


def register_schemas(*, registry: Registry, change: ChangeOptions, output: Format = Output.TABLE) -> None:
    """Register the schemas of control records in a schema registry, so that kcat, AKHQ and others decode them.

    Each schema is registered under the id that records carry, which needs a registry with the mode IMPORT, such as
    Confluent's or Redpanda's. Schemas that are registered already are left as they are. Headgate needs no registry.

    Example: headgate topic register --registry http://registry.example:8081
    """
    from headgate.app.schema_registration import RegistrationState, standings  # noqa: PLC0415 - see above

    spec, options = _spec(registry), _options(registry)
    with waiting(f"the schema registry at {spec.url}"):
        found = standings(spec, options)
    missing = sum(each.standing is not RegistrationState.REGISTERED for each in found)
    permit = agreed(change, f"register {missing} schemas at {spec.url}")
    if permit is not None:
        done = {each.id: each for each in _register(spec, options, found, permit)}
        found = [done.get(each.id, each) for each in found]
    rows: list[dict[str, Any]] = [msgspec.to_builtins(each) for each in found]
    show_rows(("id", "record", "version", "subject", "standing"), rows, output)
    if permit is None:
        note(f"would register {missing} schemas at {spec.url}; nothing was changed")
    else:
        note(f"registered {missing} schemas at {spec.url}, {len(found) - missing} were registered before")


def _register(
    spec: "RegistrySpec", options: "RegistryOptions", found: "list[Registered]", _permit: Permit
) -> "list[Registered]":
    from headgate.app.schema_registration import add_schemas  # noqa: PLC0415 - see above

    with waiting(f"the schema registry at {spec.url}"):
        return list(add_schemas(spec, options, found))


def _spec(registry: str) -> "RegistrySpec":
    from headgate.config.registry_spec import RegistrySpec  # noqa: PLC0415 - see above
    from headgate.databases.connections import named_registry  # noqa: PLC0415 - see above

    if _is_name(registry):
        return named_registry(registry, "--registry")
    try:
        return RegistrySpec(url=registry)
    except ValueError as error:
        raise typer.BadParameter(
            "it is not the URL of a schema registry, such as http://registry.example:8081. A registry that needs a "
            "user is named in HEADGATE_CONNECTIONS, and its name is given here",
            param_hint="--registry",
        ) from error


def _options(registry: str) -> "RegistryOptions":
    from headgate.config.registry_spec import RegistryOptions  # noqa: PLC0415 - see above
    from headgate.databases.connections import named_registry_options  # noqa: PLC0415 - see above

    if _is_name(registry):
        return named_registry_options(registry)
    by_name = "--registry (the name of one with {}, not a URL)"
    return RegistryOptions(
        "--registry",
        url="--registry",
        login=by_name.format("a user"),
        ca_file=by_name.format("ca_file"),
        client=by_name.format("certificate_file and key_file"),
    )


def _is_name(registry: str) -> bool:
    return "://" not in registry
