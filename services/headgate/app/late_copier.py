"""Spark for the owner of migrations: started with the first copy that needs it, for most owners only stand by."""

import threading
from importlib import import_module
from pathlib import Path
from typing import Any

from headgate.app.process import Surroundings
from headgate.config.settings import SettingsError
from headgate.migration.strategies.contract import RefusedError
from headgate.provisioning.errors import EmbeddedError


class LateCopier:
    """See headgate.migration.strategies.online.strategy.Copier. ``scratch`` is for Spark's temporary files."""

    def __init__(self, around: Surroundings, scratch: Path) -> None:
        self._around = around
        self._scratch = scratch
        self._lock = threading.Lock()
        self._made: Any = None

    def copy(self, *given: Any) -> None:
        """See Copier. RefusedError also where Java or a jar is missing, or a setting is wrong: it would not pass."""
        with self._lock:
            if self._made is None:
                part = import_module("headgate.app.spark")
                try:
                    self._made = part.new_copier(self._around.settings, self._scratch)
                except (SettingsError, EmbeddedError) as error:
                    raise RefusedError(f"Spark cannot be started on the owner's machine: {error}") from error
        self._made.copy(*given)

    def stop(self) -> None:
        """End Spark, if it was started."""
        with self._lock:
            if self._made is not None:
                self._made.stop()
