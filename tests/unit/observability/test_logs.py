"""Log lines as a machine reads them."""

import io
import json
import logging
from collections.abc import Iterator

import pytest
import requests
import structlog
from py4j.protocol import Py4JError, Py4JNetworkError

from fixtures.raw_http import answering_raw
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
    logger(service="coordinator").bind(shard=3).info("owner", owner_rev=17)
    logger().debug("not written")
    line = json.loads(out.getvalue())
    assert (line["event"], line["service"], line["shard"], line["owner_rev"], line["level"]) == (
        "owner",
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


def test_what_a_server_sends_as_headers_is_not_logged() -> None:
    """urllib3 warns of those that it cannot parse, and they may repeat a request with a secret."""
    out = io.StringIO()
    configure_logs("json", "debug", out)
    first = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n<body>\r\n\r\n{}"
    with answering_raw(first) as server, requests.Session() as session:
        session.post(server.url, data=b"s3cr-t=1")
    assert "s3cr-t" not in out.getvalue()


def test_console_is_for_people() -> None:
    out = io.StringIO()
    configure_logs("console", "info", out)
    logger(service="agent").info("session_started")
    assert "session_started" in out.getvalue()
    assert "service=agent" in out.getvalue()


def test_a_traceback_for_people_is_short_and_does_not_show_variables() -> None:
    out = io.StringIO()
    configure_logs("console", "info", out)
    written = {"password": "correct" + " horse"}
    try:
        written["user"]
    except KeyError:
        logging.getLogger("some.library").exception("it failed")
    assert "KeyError: 'user'" in out.getvalue()
    assert "correct horse" not in out.getvalue()


def test_what_py4j_raises_to_its_caller_it_does_not_print_as_well() -> None:
    """It writes some of it to the root logger, round its own (py4j/java_gateway.py, ``send_command``)."""
    out = io.StringIO()
    configure_logs("json", "info", out)
    for folder in ("/site-packages/py4j/java_gateway.py", "/home/me/mine.py"):
        record = logging.LogRecord("root", logging.ERROR, folder, 1, "Exception while sending command.", (), None)
        logging.getLogger().handle(record)
    assert out.getvalue().count("Exception while sending command.") == 1


def test_a_call_from_a_jvm_that_ends_is_not_logged_but_a_fault_in_what_it_calls_is() -> None:
    """Py4J logs and returns what a callback raises (``_call_proxy``)."""
    out = io.StringIO()
    configure_logs("json", "info", out)
    for error in (Py4JError("SparkSession does not exist in the JVM"), Py4JNetworkError("gone"), KeyError("ours")):
        logging.getLogger("py4j.clientserver").error("There was an exception in the proxy.", exc_info=error)
    (line,) = out.getvalue().splitlines()
    assert "KeyError" in json.loads(line)["exception"]


def test_a_logger_made_before_logs_are_set_up_writes_where_they_go() -> None:
    made_before = logger(service="coordinator")
    out = io.StringIO()
    configure_logs("json", "info", out)
    made_before.info("effect")
    line = json.loads(out.getvalue())
    assert (line["event"], line["service"]) == ("effect", "coordinator")


def test_a_library_that_repeats_itself_is_shown_once_and_others_are_shown_as_often_as_they_speak() -> None:
    out = io.StringIO()
    configure_logs("json", "info", out)
    for _ in range(100):
        logging.getLogger("aiokafka.conn").error("Unable connect to node with id %s", 1)
        logging.getLogger("faust").warning("another line")
        logging.getLogger("uvicorn").warning("each of these counts")
    lines = [json.loads(line)["event"] for line in out.getvalue().splitlines()]
    assert sorted(set(lines)) == ["Unable connect to node with id 1", "another line", "each of these counts"]
    assert [lines.count(line) for line in sorted(set(lines))] == [1, 1, 100]


def test_what_faust_logs_for_a_class_of_the_views_is_shown_only_if_it_is_a_warning() -> None:
    out = io.StringIO()
    configure_logs("json", "info", out)
    logging.getLogger("headgate.views.lag").info("[^-_Forgetful: lag]: Starting...")
    logging.getLogger("headgate.views.lag").warning("it crashed")
    assert [json.loads(line)["event"] for line in out.getvalue().splitlines()] == ["it crashed"]
