"""The locks hold what pyproject.toml asks for: the image's all that the product needs, the other one everything."""

import re
import tomllib
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[2]
NAME: Final = re.compile(r"^([A-Za-z0-9][\w.-]*)", re.MULTILINE)


def names(requirements: list[str]) -> set[str]:
    return {re.sub(r"[-_.]+", "-", found[0]).lower() for text in requirements if (found := NAME.match(text))}


def locked(file: str) -> set[str]:
    return names((ROOT / file).read_text().splitlines())


PROJECT: Final[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text())
PRODUCT: Final = names(PROJECT["project"]["dependencies"] + PROJECT["project"]["optional-dependencies"]["views"])
GROUPS: Final = {group: names(asked) for group, asked in PROJECT["dependency-groups"].items()}


def test_the_images_lock_holds_all_that_the_product_asks_for() -> None:
    assert PRODUCT - locked("requirements.image.lock") == set()


def test_the_lock_of_lakes_holds_the_same_and_their_libraries() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    lakes = locked("requirements.lakes.lock")
    assert names(extras["delta"] + extras["iceberg"]) | locked("requirements.image.lock") <= lakes


def test_the_images_lock_holds_no_tool() -> None:
    assert set().union(*GROUPS.values()) & locked("requirements.image.lock") == set()


def test_the_other_lock_holds_everything() -> None:
    assert set().union(PRODUCT, *GROUPS.values()) - locked("requirements.lock") == set()
