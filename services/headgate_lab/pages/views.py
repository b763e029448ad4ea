"""docs/reference/views.md: what the views answer over HTTP."""

from typing import Final

import msgspec

from headgate.views.routes import ROUTES, Route, openapi

_OTHERS: Final = (("/openapi.json", "the description of these paths, OpenAPI 3.1"),)


class _Schema(msgspec.Struct, frozen=True, rename="camel"):
    ref: str | None = msgspec.field(name="$ref", default=None)
    any_of: tuple["_Schema", ...] = ()
    type: str = "any"
    items: "_Schema | bool | None" = None
    prefix_items: tuple["_Schema", ...] = ()
    enum: tuple[str | int, ...] = ()
    properties: dict[str, "_Schema"] = {}


class _Media(msgspec.Struct, frozen=True):
    schema: _Schema


class _Response(msgspec.Struct, frozen=True):
    description: str
    content: dict[str, _Media]


class _Operation(msgspec.Struct, frozen=True):
    responses: dict[str, _Response]


class _Components(msgspec.Struct, frozen=True):
    schemas: dict[str, _Schema]


class _Description(msgspec.Struct, frozen=True):
    """What the page shows of the description. ``paths``: path → method → operation."""

    paths: dict[str, dict[str, _Operation]]
    components: _Components


def page() -> str:
    """The page."""
    described = msgspec.convert(openapi(), _Description)
    answers = {route.path: described.paths[route.path]["get"] for route in ROUTES}
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
        "A list has everything at once. An unknown parameter is refused. The header `Age` of an answer has the seconds",
        "since a broker last answered: the answer may be that old. After 10 s `/readyz` shows the views as not ready.",
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
    for name, schema in sorted(described.components.schemas.items()):
        if schema.properties:
            fields = ", ".join(f"`{field}` {_kind(kind)}" for field, kind in schema.properties.items())
            parts += ["", f"### {name}", "", fields + "."]
    return "\n".join(parts) + "\n"


def _row(route: Route, answer: _Operation) -> str:
    parameters = "; ".join(f"`{name}`: {meaning}" for name, meaning in route.query.items())
    shown = answer.responses["200"].content["application/json"].schema
    return f"| `{route.path}` | {route.summary} | {parameters} | {_kind(shown)} |"


def _errors(answer: _Operation) -> list[tuple[str, str]]:
    return [(status, each.description) for status, each in answer.responses.items() if status != "200"]


def _kind(schema: _Schema) -> str:
    """A JSON Schema in a few words."""
    if schema.ref is not None:
        return schema.ref.rpartition("/")[2]
    if schema.any_of:
        kinds = [_kind(each) for each in schema.any_of]
        return " or ".join(kind for kind in kinds if kind != "null") + ("?" if "null" in kinds else "")
    if schema.type == "array":
        items = schema.items if isinstance(schema.items, _Schema) else next(iter(schema.prefix_items), _Schema())
        return f"list of {_kind(items)}"
    if schema.enum:
        return " or ".join(f"`{each}`" for each in schema.enum)
    return schema.type
