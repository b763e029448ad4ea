"""CONTRIBUTING's map: every folder of product and lab, in the layer that the contract of imports gives it."""

import configparser
import re
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[3]
PAGE: Final = (ROOT / "CONTRIBUTING.md").read_text()
ROW: Final = re.compile(r"^\| (\d+) \| `(\w+)/` \|", re.MULTILINE)
FILES: Final = "__main__"
"""Layers that are no folder."""

MAPS: Final = dict(zip(("headgate", "headgate_lab"), PAGE.split("Beside the product, in no image"), strict=True))


def mapped(package: str) -> dict[str, int]:
    return {folder: int(layer) for layer, folder in ROW.findall(MAPS[package])}


def contracted(package: str) -> dict[str, int]:
    contracts = configparser.ConfigParser()
    contracts.read(ROOT / ".importlinter")
    (layers,) = (
        contract["layers"].split("\n")
        for contract in contracts.values()
        if contract.get("containers", "").strip() == package and contract.get("exhaustive")
    )
    folders = [[name for name in layer.split(" | ") if name and name != FILES] for layer in reversed(layers)]
    return {name: number for number, names in enumerate(filter(None, folders), start=1) for name in names}


@pytest.mark.parametrize("package", MAPS)
def test_every_folder_is_on_the_map(package: str) -> None:
    folders = {path.parent.name for path in (ROOT / "services" / package).glob("*/__init__.py")}
    assert set(mapped(package)) == folders


@pytest.mark.parametrize("package", MAPS)
def test_folders_have_the_layers_of_the_contract(package: str) -> None:
    assert mapped(package) == contracted(package)
