"""A world of roles on the in-memory log."""

import pytest

from support.toy_role import World


@pytest.fixture
def world() -> World:
    return World()
