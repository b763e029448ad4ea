"""docs/reference/views.md: what the views answer over HTTP."""

from collections.abc import Mapping
from typing import Any, Final

from headgate.views.routes import ROUTES, Route, openapi

_OTHERS: Final = (("/openapi.json", "the description of these paths, OpenAPI 3.1"),)


def page() -> str:
    """The page."""
    described = openapi()
    schemas: Mapping[str, Any] = described["components"]["schemas"]
    answers = {route.path: described["paths"][route.path]["get"] for route in ROUTES}
    parts = [
        "# Views over HTTP",
        "",
        "The paths that `headgate serve views` answers, on port 8421. Each answers `GET` with JSON, and changes",
        "nothing. No login is needed: [security](../howto/security.md) describes who can reach them. This page is made",
        "from the code by `make docs`.",
        "",
        "| path | answer | parameters | object |",
        "|---|---|---|---|",
        *(_row(route, answers[route.path]) for route in ROUTES),
        *(f"| `{path}` | {answer} | | |" for path, answer in _OTHERS),
        "",
        "A list has everything at once. An unknown parameter is refused.",
        "",
        "## Errors",
        "",
        "An error is an object with `name`, which is stable, and `message`.",
        "",
        "| status | when |",
        "|---|---|",
        *(f"| {status} | {meaning} |" for status, meaning in _errors(answers[ROUTES[0].path])),
        "",
        "## Objects",
        "",
        "`?`: the field can be null.",
    ]
    for name, schema in sorted(schemas.items()):
        if "properties" in schema:
            fields = ", ".join(f"`{field}` {_kind(kind)}" for field, kind in schema["properties"].items())
            parts += ["", f"### {name}", "", fields + "."]
    return "\n".join(parts) + "\n"


def _row(route: Route, answer: Mapping[str, Any]) -> str:
    parameters = "; ".join(f"`{name}`: {meaning}" for name, meaning in route.query.items())
    shown = answer["responses"]["200"]["content"]["application/json"]["schema"]
    return f"| `{route.path}` | {route.summary} | {parameters} | {_kind(shown)} |"


def _errors(answer: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [(status, each["description"]) for status, each in answer["responses"].items() if status != "200"]


def _kind(schema: Mapping[str, Any]) -> str:
    """A JSON Schema in a few words."""
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        kinds = [_kind(each) for each in schema["anyOf"]]
        return " or ".join(kind for kind in kinds if kind != "null") + ("?" if "null" in kinds else "")
    if schema.get("type") == "array":
        items = schema.get("items") or (schema.get("prefixItems") or [{}])[0]
        return f"list of {_kind(items)}"
    if "enum" in schema:
        return " or ".join(f"`{each}`" for each in schema["enum"])
    return str(schema.get("type", "any"))
