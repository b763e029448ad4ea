"""The version is the same everywhere (docs/releasing.md)."""

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from headgate import __version__

ROOT = Path(__file__).parents[3]

NAMED = re.compile(r"headgate(?:_lab|-lab|-connect)?(?:==|:|-)(\d+\.\d+\.\d+)")
"""A package, a wheel or an image of ours with its version."""

HISTORY = ("CHANGELOG.md", "docs/adr/", "tests/unit/docs/test_version.py")


def project(folder: str) -> dict[str, Any]:
    found: dict[str, Any] = tomllib.loads((ROOT / folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return found


def test_the_packages_have_it_and_need_each_other_in_it() -> None:
    product, lab = project("."), project("services/headgate_lab")
    assert (product["version"], lab["version"]) == (__version__, __version__)
    assert product["optional-dependencies"]["lab"] == [f"headgate-lab=={__version__}"]
    assert f"headgate=={__version__}" in lab["dependencies"]


def test_the_chart_has_it() -> None:
    chart = yaml.safe_load((ROOT / "infra/helm/headgate/Chart.yaml").read_text(encoding="utf-8"))
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


def test_the_changelog_begins_with_it() -> None:
    sections = re.findall(r"^## (.*)$", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert re.fullmatch(rf"{re.escape(__version__)}, (unreleased|\d{{4}}-\d\d-\d\d)", sections[0])
    assert all(re.fullmatch(r"\d+\.\d+\.\d+, \d{4}-\d\d-\d\d", section) for section in sections[1:])


def tracked() -> list[str]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode:
        pytest.skip("this is not a clone")
    return listed.stdout.splitlines()


def test_every_file_that_names_a_package_or_an_image_of_ours_names_this_one() -> None:
    wrong = {}
    for name in tracked():
        path = ROOT / name
        if name.startswith(HISTORY) or not path.is_file():
            continue
        versions = set(NAMED.findall(path.read_text(encoding="utf-8", errors="ignore"))) - {__version__}
        if versions:
            wrong[name] = versions
    assert wrong == {}
