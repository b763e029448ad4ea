"""The log on Kafka does what every log does."""

import pytest

from support.eventlog_contract import LogContract

pytestmark = pytest.mark.integration


class TestKafkaLog(LogContract):
    """On a real broker; the fixture ``log`` is in conftest.py."""
