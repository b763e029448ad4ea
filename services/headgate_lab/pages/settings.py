"""docs/reference/settings.md: every variable, and the Kafka properties that cannot be chosen."""

from headgate.config.settings import Option, known_variables
from headgate.eventlog.connection import FIXED_PROPERTIES


def page() -> str:
    """The page."""
    parts = [
        "# Settings",
        "",
        "The variables that a process reads; [configuration](../configuration.md) describes how to set them. This page",
        "is made from the code by `make docs`.",
        "",
        "| variable | default | meaning |",
        "|---|---|---|",
        *(
            f"| `{_shown(name)}` | {_default(option)} | {option.description} |"
            for name, option in known_variables().items()
        ),
        "",
        "## Kafka properties that cannot be chosen",
        "",
        "A guarantee depends on each of them, so setting one is refused.",
        "",
        "| property | why |",
        "|---|---|",
        *(f"| `{name}` | {why} |" for name, why in FIXED_PROPERTIES.items()),
    ]
    return "\n".join(parts) + "\n"


def _shown(name: str) -> str:
    return f"{name}__<PROPERTY>" if name == "HEADGATE_KAFKA" else name


def _default(option: Option) -> str:
    value = option.default
    if value is None:
        return "the host's name" if option.kind is str else ""
    if value == "":
        return ""
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"
