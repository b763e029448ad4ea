"""Log lines as a machine reads them."""

import io
import json
import logging
from collections.abc import Iterator

import pytest
import structlog

from headgate.observability.logs import configure_logs, logger


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.reset_defaults()


def test_a_line_is_one_json_object_with_its_facts() -> None:
    out = io.StringIO()
    configure_logs("auto", "info", out)
    logger(service="coordinator").bind(shard=3).info("enthroned", owner_rev=17)
    logger().debug("not written")
    line = json.loads(out.getvalue())
    assert (line["event"], line["service"], line["shard"], line["owner_rev"], line["level"]) == (
        "enthroned",
        "coordinator",
        3,
        17,
        "info",
    )
    assert line["timestamp"].endswith("Z")


def test_libraries_log_the_same_way() -> None:
    out = io.StringIO()
    configure_logs("json", "info", out)
    logging.getLogger("some.library").warning("odd %s", "thing")
    assert json.loads(out.getvalue())["event"] == "odd thing"


def test_console_is_for_people() -> None:
    out = io.StringIO()
    configure_logs("console", "info", out)
    logger(service="agent").info("session_started")
    assert "session_started" in out.getvalue()
    assert "service=agent" in out.getvalue()
