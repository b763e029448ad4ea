"""One factor for every bound of demo, chaos and tests."""

import pytest
from testcontainers.core.config import testcontainers_config

from fixtures import servers
from headgate.config.settings import load_settings
from headgate.provisioning.errors import EmbeddedError
from headgate.provisioning.time_scale import TIME_SCALE_VARIABLE, scaled_seconds
from headgate_lab.parts.processes import environment


def test_bounds_are_stretched_by_what_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TIME_SCALE_VARIABLE, raising=False)
    assert scaled_seconds(90) == 90
    monkeypatch.setenv(TIME_SCALE_VARIABLE, "2.5")
    assert scaled_seconds(90) == 225
    assert environment({})[TIME_SCALE_VARIABLE] == "2.5", "what is started waits as long"
    load_settings({})


@pytest.mark.parametrize("said", ["0.5", "-1", "quick", "nan", "inf", ""])
def test_what_is_no_factor_is_refused(said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(TIME_SCALE_VARIABLE, said)
    with pytest.raises(EmbeddedError, match=r"HEADGATE_TIME_SCALE=.* a number of 1 or more"):
        scaled_seconds(1)


def test_containers_of_tests_get_as_long_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(testcontainers_config, "max_tries", testcontainers_config.max_tries)
    monkeypatch.setenv(TIME_SCALE_VARIABLE, "2.5")
    for _ in range(2):  # each server asks for it
        servers.let_containers_start_slowly()
        assert testcontainers_config.timeout == 2.5 * servers.CONTAINER_SECONDS
