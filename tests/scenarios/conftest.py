"""The option that regenerates golden traces."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--rewrite-scenarios", action="store_true", help="write the traces of tests/scenarios anew")
