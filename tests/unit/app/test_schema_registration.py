"""Schemas of control records in a registry that takes ids, in one that does not, and in one that is taken."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import unquote

import fastavro
import msgspec
import pytest
from fastavro.schema import to_parsing_canonical_form
from typer.testing import CliRunner, Result

from fixtures.registry_server import OF_SOURCE
from headgate.app import schema_registration
from headgate.app.exit_codes import ExitCode
from headgate.app.schema_registration import RegistrationState, standings
from headgate.cli.main import app
from headgate.config.registry_spec import RegistrySpec
from headgate.eventlog.codec import Codec
from headgate.eventlog.schema_files import schemas
from headgate.formats import schema_registry as asking
from headgate.formats.schema_registry import SchemaRegistry
from headgate.records.base import Fact
from headgate.records.control import SessionEnded
from headgate.records.keys import SessionKey
from headgate_lab.embedded.ports import free_ports
from support.connections import described_registry


class Registry:
    """What Confluent's registry does with ids and modes. ``takes_ids``: whether it has the mode IMPORT."""

    def __init__(self, *, takes_ids: bool = True) -> None:
        self.takes_ids = takes_ids
        self.by_id: dict[int, str] = {}
        self.modes: dict[str, str] = {}
        self.broken: set[tuple[str, str]] = set()
        """Method and first part of the path that it answers with 500."""
        self.url = ""

    def answer(self, method: str, path: str, body: Any) -> tuple[int, Any]:
        parts = [unquote(part) for part in path.strip("/").split("/")]
        if (method, parts[0]) in self.broken and parts[1] != "types":
            return 500, {"error_code": 50001, "message": "the store is read-only"}
        return self._told(parts) if method == "GET" else self._done(method, parts, body)

    def _told(self, parts: list[str]) -> tuple[int, Any]:
        match parts:
            case ["schemas", "types"]:
                return 200, ["JSON", "PROTOBUF", "AVRO"]
            case ["schemas", "ids", number] if int(number) in self.by_id:
                return 200, {"schema": self.by_id[int(number)]}
            case _:
                return 404, {"error_code": 40403, "message": "Schema not found"}

    def _done(self, method: str, parts: list[str], body: Any) -> tuple[int, Any]:
        match method, parts:
            case "PUT", ["mode", subject] if self.takes_ids:
                self.modes[subject] = body["mode"]
                return 200, body
            case "DELETE", ["mode", subject]:
                self.modes.pop(subject, None)
                return 200, {"mode": "IMPORT"}
            case "POST", ["subjects", subject, "versions"] if self.modes.get(subject) == "IMPORT":
                # It writes schemas in its own way.
                self.by_id[body["id"]] = json.dumps(json.loads(body["schema"]), sort_keys=True)
                return 200, {"id": body["id"]}
            case _:
                return 422, {"error_code": 42205, "message": "IMPORT is not supported"}


def served(registry: Registry) -> Iterator[Registry]:
    class Handler(BaseHTTPRequestHandler):
        def _any(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = json.loads(self.rfile.read(length)) if length else None
            status, answer = registry.answer(self.command, self.path, body)
            content = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_PUT = do_POST = do_DELETE = _any  # noqa: N815 - names of the standard library

        def log_message(self, *_: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        registry.url = f"http://127.0.0.1:{server.server_port}"
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield registry
        server.shutdown()
        thread.join()


@pytest.fixture(autouse=True)
def few_schemas(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some of them, and all the time that a busy machine needs to answer."""
    few = {number: schemas().by_id[number] for number in (1101, 1501, 1601)}
    monkeypatch.setattr(schema_registration, "schemas", lambda: msgspec.structs.replace(schemas(), by_id=few))
    monkeypatch.setattr(asking, "CONNECT_SECONDS_MAX", 120.0)
    monkeypatch.setattr(asking, "ANSWER_SECONDS_MAX", 120.0)


@pytest.fixture
def registry() -> Iterator[Registry]:
    yield from served(Registry())


@pytest.fixture
def plain_registry() -> Iterator[Registry]:
    yield from served(Registry(takes_ids=False))


def registered(registry: Registry, *options: str) -> Result:
    return CliRunner().invoke(app, ["topic", "register", "--registry", registry.url, *options])


def test_every_schema_is_registered_under_its_id_and_reads_a_record_of_ours(registry: Registry) -> None:
    preview = registered(registry, "--dry-run")
    assert (preview.exit_code, registry.by_id) == (0, {}), preview.output
    assert "would register 3 schemas" in preview.stderr

    done = registered(registry, "-o", "json")
    assert done.exit_code == 0, done.output
    assert {row["standing"] for row in json.loads(done.stdout)} == {"registered"}
    assert set(registry.by_id) == {1101, 1501, 1601}
    assert registry.modes == {}, "no subject is left in the mode IMPORT"

    record = SessionEnded(owner_rev=1, reason="lease expired", ended_ms=2)
    _, value = Codec(schemas()).encode(Fact(SessionKey("a", "s"), record))
    assert value is not None
    schema = SchemaRegistry(RegistrySpec(url=registry.url), OF_SOURCE).schema(int.from_bytes(value[1:5], "big"))
    read = fastavro.schemaless_reader(BytesIO(value[5:]), json.loads(schema), None)
    assert read == msgspec.to_builtins(record)


def test_what_is_registered_is_left_and_what_is_missing_is_added(registry: Registry) -> None:
    assert registered(registry).exit_code == 0
    del registry.by_id[1501]
    again = registered(registry)
    assert (again.exit_code, 1501 in registry.by_id) == (0, True)
    assert "registered 1 schemas" in again.stderr


def test_a_registry_without_ids_is_refused_with_the_reason(plain_registry: Registry) -> None:
    refused = registered(plain_registry)
    assert refused.exit_code == ExitCode.SOURCE
    assert "IMPORT is not supported" in refused.stderr
    assert "Confluent's and Redpanda's" in refused.stderr
    assert plain_registry.by_id == {}


def test_an_id_that_is_taken_is_refused_before_anything_is_registered(registry: Registry) -> None:
    registry.by_id[1501] = '{"type": "string"}'
    refused = registered(registry)
    assert refused.exit_code == ExitCode.SOURCE
    assert "Schema 1501 (SpanDispatched)" in refused.stderr
    assert set(registry.by_id) == {1501}
    found = {each.id: each.standing for each in standings(RegistrySpec(url=registry.url), OF_SOURCE)}
    assert (found[1501], found[1101]) == (RegistrationState.TAKEN, RegistrationState.MISSING)


def test_a_registry_that_cannot_answer_for_an_id_is_not_taken_to_have_another_schema(registry: Registry) -> None:
    registry.broken = {("GET", "schemas")}
    refused = registered(registry)
    assert refused.exit_code == ExitCode.SOURCE
    assert "answered 500 for schema 1101" in refused.stderr
    assert "the store is read-only" in refused.stderr
    assert "another schema" not in refused.stderr


def test_a_subject_that_stays_in_the_mode_import_is_reported(registry: Registry) -> None:
    registry.broken = {("DELETE", "mode")}
    refused = registered(registry)
    assert refused.exit_code == ExitCode.SOURCE
    assert "is refused the end of the mode IMPORT (500" in refused.stderr


def test_what_is_no_registry_is_told(registry: Registry) -> None:
    for given, code in (("htp://x", ExitCode.USAGE), ("http://127.0.0.1:1", ExitCode.SOURCE)):
        result = CliRunner().invoke(app, ["topic", "register", "--registry", given])
        assert result.exit_code == code, result.output


def test_every_schema_is_what_a_registry_gives_back() -> None:
    for version in schemas().by_id.values():
        sent = schema_registration._text(version)
        assert schema_registration._canonical(sent) == to_parsing_canonical_form(version.parsed)
    assert schema_registration._canonical("no schema") is None


@pytest.mark.parametrize("is_named", [True, False])
def test_an_error_names_where_the_registry_is_described(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, is_named: bool
) -> None:
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    monkeypatch.setenv("HEADGATE_CONNECTIONS", str(tmp_path / "connections.yaml"))
    given = described_registry(url) if is_named else url
    where = f"HEADGATE_CONNECTIONS: registries.{given}" if is_named else "--registry"
    failed = CliRunner().invoke(app, ["topic", "register", "--registry", given, "--dry-run"])
    assert failed.exit_code == ExitCode.SOURCE
    said = " ".join(failed.stderr.split())
    assert f"{where}: the schema registry at {url} cannot be used" in said
    assert f"or correct {where}{'.url' if is_named else ''}" in said
