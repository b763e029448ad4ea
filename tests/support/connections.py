"""Connections that tests describe to this process and to services that it starts (HEADGATE_CONNECTIONS)."""

import os
from pathlib import Path
from typing import Any

import yaml

__all__ = ["described", "described_registry"]

USES = ("sink", "source", "migration")


def described(
    address: str, password_file: Path | str | None = None, use: tuple[str, ...] = USES, *, approval: str = "none"
) -> str:
    """The name of a connection to that address, new each time."""
    kind = "mysql" if address.startswith(("mysql://", "mariadb://")) else "postgresql"
    password = {} if password_file is None else {"password_file": str(password_file)}
    return _added("connections", {"kind": kind, "address": address, "use": list(use), "approval": approval, **password})


def described_registry(url: str, **more: Any) -> str:
    """The name of a schema registry with that address, new each time."""
    return _added("registries", {"url": url, **more})


def _added(part: str, described: dict[str, Any]) -> str:
    file = Path(os.environ["HEADGATE_CONNECTIONS"])
    known = yaml.safe_load(file.read_text(encoding="utf-8")) if file.exists() else {"connections": {}, "registries": {}}
    name = f"{part[:2]}{len(known[part]) + 1}"
    known[part][name] = described
    # Replaced as a whole: a service may be reading it.
    new = file.with_suffix(".new")
    new.write_text(yaml.safe_dump(known), encoding="utf-8")
    new.replace(file)
    return name
