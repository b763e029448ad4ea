"""Kafka Connect, standalone, inside the broker's JVM: runs the capturing connector, spoken to by its REST interface."""

import json
import re
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JError

from headgate.provisioning.errors import EmbeddedError
from headgate.provisioning.jvm import Jvm, reason
from headgate.provisioning.time_scale import scaled_seconds
from headgate_lab.embedded.ports import HOST, free_ports, require_free

# A connector validates its database before it answers.
_ANSWER_SECONDS = 180
_POLL_SECONDS = 0.2


_FRAME: Final = "\t"
_CAUSE: Final = "Caused by: "
_CLASS: Final = re.compile(r"^[\w.$]+(Exception|Error)(: |$)")


class ConnectorFailedError(EmbeddedError):
    """A connector, or a task of it, has failed."""


def cause_in(trace: str) -> str:
    """The cause that a trace of Java names last, in its own words."""
    lines = [line for line in trace.splitlines() if line.strip() and not line.startswith(_FRAME)]
    causes = [line.removeprefix(_CAUSE) for line in lines if line.startswith(_CAUSE)]
    words = _CLASS.sub("", (causes or lines or [""])[-1]).strip().rstrip(".")
    return words or (causes or lines or ["it has given no reason"])[-1].strip()


class ConnectWorker:
    """One running worker; made by EmbeddedKafka.start_connect. ``url`` is its REST interface."""

    def __init__(
        self, jvm: Jvm, bootstrap: str, data_dir: Path, plugin_paths: Sequence[Path], port: int | None
    ) -> None:
        """Start it and return when it answers. Raises PortTakenError or EmbeddedError."""
        if port is None:
            (port,) = free_ports(1)
        require_free(port, "Kafka Connect")
        self.url = f"http://{HOST}:{port}"
        self._data_dir = data_dir
        worker = {
            "bootstrap.servers": bootstrap,
            "listeners": f"HTTP://{HOST}:{port}",
            "key.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "key.converter.schemas.enable": "false",
            "value.converter.schemas.enable": "false",
            # By default NULL in a column that has a DEFAULT is written as the default.
            "key.converter.replace.null.with.default": "false",
            "value.converter.replace.null.with.default": "false",
            # A connector's configuration can name the file of a password.
            "config.providers": "directory",
            "config.providers.directory.class": "org.apache.kafka.common.config.provider.DirectoryConfigProvider",
            "offset.storage.file.filename": str(data_dir / "connect.offsets"),
            "offset.flush.interval.ms": "1000",
            # Looks only where plugins declare themselves: a scan of all classes costs seconds.
            "plugin.discovery": "service_load",
            "plugin.path": ",".join(str(path) for path in plugin_paths),
        }
        cli = jvm.view.org.apache.kafka.connect.cli
        arguments = jvm.strings(str(data_dir / "connect.properties"))
        try:
            self._connect = cli.ConnectStandalone(arguments).startConnect(jvm.string_map(worker))
        except Py4JError as error:
            raise EmbeddedError(f"Kafka Connect did not start: {reason(error)}; the logs are in {data_dir}") from None

    def put_connector(self, name: str, config: Mapping[str, str]) -> None:
        """Create the connector or change its configuration. Raises EmbeddedError with Connect's own words."""
        self._ask("PUT", f"/connectors/{name}/config", dict(config))

    def delete_connector(self, name: str) -> None:
        """Remove the connector; its replication slot and publication stay in the source."""
        self._ask("DELETE", f"/connectors/{name}")

    def connector_status(self, name: str) -> dict[str, Any]:
        """Connect's status object: ``{"connector": {"state"}, "tasks": [{"id", "state", "trace"}]}``."""
        status: dict[str, Any] = self._ask("GET", f"/connectors/{name}/status")
        return status

    def wait_until_running(self, name: str, timeout_seconds: float = _ANSWER_SECONDS) -> None:
        """Return once the connector and its task run. Raises EmbeddedError when one failed or time is up."""
        seconds = scaled_seconds(timeout_seconds)
        deadline = time.monotonic() + seconds
        status: dict[str, Any] = {}
        while time.monotonic() < deadline:
            # A connector just created has no status yet: Connect answers 404 until it has.
            if name in self._ask("GET", "/connectors"):
                status = self._status_if_any(name)
                parts = [status["connector"], *status["tasks"]] if status else []
                failed = [part for part in parts if part["state"] == "FAILED"]
                if failed:
                    raise self.failed(name, failed[0])
                if len(parts) > 1 and all(part["state"] == "RUNNING" for part in parts):
                    return
            time.sleep(_POLL_SECONDS)
        raise EmbeddedError(f"connector {name} does not run after {seconds:.0f} s: {status or 'no status'}")

    def failed(self, name: str, part: Mapping[str, object]) -> "ConnectorFailedError":
        """The error about a connector, or a task of it, that has failed."""
        return ConnectorFailedError(
            f"connector {name} failed: {cause_in(str(part.get('trace', '')))}. The whole trace is in the logs in "
            f"{self._data_dir}. Correct the cause, and run the command again"
        )

    def stop(self) -> None:
        """Stop connectors and worker, offsets flushed."""
        self._connect.stop()
        self._connect.awaitStop()

    def _status_if_any(self, name: str) -> dict[str, Any]:
        try:
            return self.connector_status(name)
        except EmbeddedError as error:
            if isinstance(error.__cause__, urllib.error.HTTPError) and error.__cause__.code == 404:
                return {}
            raise

    def _ask(self, method: str, path: str, body: Mapping[str, str] | None = None) -> Any:
        request = urllib.request.Request(  # noqa: S310 (our own loopback address)
            self.url + path,
            method=method,
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=scaled_seconds(_ANSWER_SECONDS)) as answer:  # noqa: S310
                content = answer.read()
        except urllib.error.HTTPError as error:
            with error:
                said = error.read().decode(errors="replace")
            raise EmbeddedError(f"Connect refused {method} {path}: {error.code} {said}") from error
        except OSError as error:
            raise EmbeddedError(f"Connect at {self.url} does not answer {method} {path}: {error}") from error
        return json.loads(content) if content else None
