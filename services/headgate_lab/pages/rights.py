"""docs/reference/rights.md: what each service may do on Kafka."""

from headgate.config.rights import RIGHTS, Right, Topics

CLUSTER = "headgate"


def page() -> str:
    """The page."""
    parts = [
        "# Rights on Kafka",
        "",
        f"The rights that each service needs in a cluster named `{CLUSTER}`, if the brokers have an authorizer.",
        "This page is made from the code by `make docs`; a test grants exactly these rights and runs every service.",
        "[Configuration](../configuration.md#rights-on-kafka) explains some of them, and how to grant them.",
        "A dot at the end means a prefix (`--resource-pattern-type prefixed`).",
        "",
        "| who | resource | names | operations |",
        "|---|---|---|---|",
        *map(_row, RIGHTS),
    ]
    return "\n".join(parts) + "\n"


def _row(right: Right) -> str:
    names = right.names if isinstance(right.names, Topics) else ", ".join(f"`{_full(name)}`" for name in right.names)
    return f"| {right.who} | {right.resource} | {names} | {', '.join(right.operations)} |"


def _full(name: str) -> str:
    return name.format(cluster=CLUSTER)
