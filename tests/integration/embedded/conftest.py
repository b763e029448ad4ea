"""Java errors of embedded servers, in a process in which Spark may have run."""

import py4j.java_gateway
import py4j.protocol
import pytest


@pytest.fixture(autouse=True)
def _java_errors_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """pyspark, once imported, translates the Java errors of every gateway by asking Spark's JVM, which may be gone."""
    monkeypatch.setattr(py4j.java_gateway, "get_return_value", py4j.protocol.get_return_value)
