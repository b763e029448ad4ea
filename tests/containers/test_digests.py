"""infra/docker/pin-digests: images by digest where a registry gives them, and nothing written where none does."""

import os
import subprocess
from pathlib import Path

import pytest
import yaml

from containers.conftest import ROOT, docker
from headgate.provisioning.time_scale import scaled_seconds

pytestmark = [pytest.mark.containers, pytest.mark.timeout(scaled_seconds(600))]

SCRIPT = ROOT / "infra/docker/pin-digests"
DIGEST = "sha256:" + "ab" * 32

STAND_IN = f"""\
#!/bin/sh
case "$1 $2" in
  "image inspect") echo "library/it@{DIGEST}" ;;
esac
"""
"""In place of an engine whose registry answers, which a machine without one cannot show."""


def pin(target: Path, **environment: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [SCRIPT, target], env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )


def test_without_a_registry_nothing_is_written(tmp_path: Path) -> None:
    if docker("pull", "--quiet", "hello-world", check=False):
        pytest.skip("a registry answers here")
    target = tmp_path / "digests.yml"
    refused = pin(target)
    assert refused.returncode == 1
    assert "no registry gives apache/kafka:4.3.1" in refused.stderr
    assert "Nothing was written" in refused.stderr
    assert list(tmp_path.iterdir()) == []


def test_without_an_engine_it_says_where_it_looked(tmp_path: Path) -> None:
    refused = pin(tmp_path / "digests.yml", DOCKER_HOST="unix:///nowhere/docker.sock")
    assert refused.returncode == 1
    assert "no engine answers at unix:///nowhere/docker.sock" in refused.stderr
    assert list(tmp_path.iterdir()) == []


def test_what_is_written_names_every_image_that_a_registry_gives(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    stand_in = tmp_path / "bin" / "docker"
    stand_in.write_text(STAND_IN, encoding="utf-8")
    stand_in.chmod(0o755)
    target = tmp_path / "digests.yml"
    done = pin(target, PATH=f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    assert done.returncode == 0, done.stderr
    written = yaml.safe_load(target.read_text(encoding="utf-8"))["services"]
    compose = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]
    ours = ("headgate:", "headgate-connect:")
    assert {name for name, each in compose.items() if not each["image"].startswith(ours)} <= set(written)
    assert {name for name, each in compose.items() if "build" in each} <= set(written)
    assert written["kafka"]["image"] == f"apache/kafka:4.3.1@{DIGEST}"
    assert written["target"]["image"] == f"postgres:18@{DIGEST}"
    assert written["topics"]["build"]["args"]["BASE"] == f"python:3.11-slim-bookworm@{DIGEST}"
