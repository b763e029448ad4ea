"""docs/reference/settings.md: every variable, and the Kafka properties that cannot be chosen."""

from pydantic.fields import FieldInfo
from pydantic_core import PydanticUndefined

from headgate.config.settings import known_variables
from headgate.eventlog.connection import FIXED_PROPERTIES


def page() -> str:
    """The page."""
    parts = [
        "# Settings",
        "",
        "The variables that a process reads; [configuration](../configuration.md) says how they are given. This page",
        "is made from the code by `make docs`.",
        "",
        "| variable | default | meaning |",
        "|---|---|---|",
        *(
            f"| `{_shown(name)}` | {_default(field)} | {field.description} |"
            for name, field in known_variables().items()
        ),
        "",
        "## Kafka properties that cannot be chosen",
        "",
        "A guarantee rests on each; one that is given is refused by its name.",
        "",
        "| property | why |",
        "|---|---|",
        *(f"| `{name}` | {why} |" for name, why in FIXED_PROPERTIES.items()),
    ]
    return "\n".join(parts) + "\n"


def _shown(name: str) -> str:
    return f"{name}__<PROPERTY>" if name == "HEADGATE_KAFKA" else name


def _default(field: FieldInfo) -> str:
    value = field.default
    if value is PydanticUndefined:
        return "the host's name" if field.annotation is str else ""
    if value == "":
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"
