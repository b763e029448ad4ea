"""Registers the source's Debezium connector with Connect and waits until it runs; only the standard library."""

import json
import os
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

NAME = "shop"
SECONDS_MAX = 300.0
"""A worker that starts beside Spark on two cores takes a minute."""

CONFIGURATION = {
    "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
    "database.hostname": "source",
    "database.user": "debezium",
    "database.dbname": "shop",
    "topic.prefix": NAME,
    # Tables that are made later are captured too: source.sql publishes all, which only a superuser may do.
    "schema.exclude.list": "audit",
    "plugin.name": "pgoutput",
    "publication.autocreate.mode": "disabled",
    "heartbeat.interval.ms": "2000",
    "decimal.handling.mode": "string",
    # Its default leaves TRUNCATE out.
    "skipped.operations": "none",
    # As many as the brokers make by default.
    "topic.creation.default.replication.factor": "-1",
    "topic.creation.default.partitions": "1",
}

PASSWORD_FILE = Path("/run/secrets/source_password")

SECURED = {
    # Read by Connect itself: the password stands neither in this request nor on Connect's topics.
    "database.password": "${directory:%s:source_password}",
    "database.sslmode": "verify-full",
    "database.sslrootcert": "%s/ca.pem",
}
"""With docker-compose.secure.yml, which says in CREDENTIALS where Connect has its own."""


def ask(method: str, path: str, body: Any = None) -> Any:
    """One request to Connect; None while it cannot answer."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(  # noqa: S310 - the address is ours
        f"{os.environ['CONNECT']}{path}", data, {"Content-Type": "application/json"}, method=method
    )
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:  # noqa: S310
            return json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            said = error.read().decode()
        if error.code == 400:
            sys.exit(f"Connect refuses the connector: {said}")
    except OSError:
        pass
    return None


def main() -> None:
    """Put, and poll until connector and task run."""
    deadline = time.monotonic() + SECONDS_MAX
    while ask("PUT", f"/connectors/{NAME}/config", CONFIGURATION | access()) is None:
        wait(deadline)
    while True:
        said = ask("GET", f"/connectors/{NAME}/status") or {}
        states = [task["state"] for task in said.get("tasks", [])]
        if states == ["RUNNING"]:
            return
        if "FAILED" in states:
            sys.exit(f"the connector has failed: {said}")
        wait(deadline)


def access() -> dict[str, str]:
    """What lets Connect in at the source."""
    folder = os.environ.get("CREDENTIALS")
    if folder:
        return {name: value.replace("%s", folder) for name, value in SECURED.items()}
    return {"database.password": PASSWORD_FILE.read_text(encoding="utf-8").strip()}


def wait(deadline: float) -> None:
    """A second, or give up."""
    if time.monotonic() > deadline:
        sys.exit(f"Connect at {os.environ['CONNECT']} did not take the connector within {SECONDS_MAX:g} s")
    time.sleep(1)


if __name__ == "__main__":
    main()
