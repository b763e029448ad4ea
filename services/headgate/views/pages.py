"""The routes as pages of Faust's own web server: it runs in the loop that reads the topics, so nothing is shared."""

from collections.abc import Callable
from typing import Any

import faust
import msgspec

from headgate.views.model import ViewsModel
from headgate.views.routes import ROUTES, BadQueryError, Failure, Known, Route, answer_to, openapi


def serve_pages(app: faust.App, known: Known, model: ViewsModel) -> None:
    """Answer every route, and /openapi.json, from now on."""
    for route in ROUTES:
        app.page(route.path)(_page(route, known, model))
    described = openapi()

    async def describe(web: Any, request: Any) -> Any:  # noqa: ARG001
        return web.json(described)

    app.page("/openapi.json")(describe)


def _page(route: Route, known: Known, model: ViewsModel) -> Callable[..., Any]:
    async def page(web: Any, request: Any, **path: str) -> Any:
        if model.behind:
            waiting = f"{len(model.behind)} partitions of the topics are still being read: {', '.join(model.behind)}"
            return _failed(web, 503, "rebuilding", waiting)
        try:
            answer = answer_to(route, known, path, request.query)
        except BadQueryError as error:
            return _failed(web, 400, "bad_query", str(error))
        if answer is None:
            return _failed(web, 404, "not_found", f"the topics hold nothing for {request.path}")
        return web.json(answer)

    # Faust names a page's class after its function.
    page.__name__ = "page_" + "_".join(part.strip("{}") for part in route.path.split("/") if part)
    return page


def _failed(web: Any, status: int, name: str, message: str) -> Any:
    return web.json(msgspec.to_builtins(Failure(name=name, message=message)), status=status)
