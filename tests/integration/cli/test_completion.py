"""The TAB key in bash and zsh: the shells themselves run the scripts that ``--show-completion`` prints."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headgate_lab.embedded import debian

pytestmark = pytest.mark.integration

BASH = """
source /dev/stdin <<< "$(_HEADGATE_COMPLETE=source_bash headgate)"
COMP_WORDS=({words}) COMP_CWORD={at}
_headgate_completion headgate
printf '%s\\n' "${{COMPREPLY[@]}}"
"""

ZSH = """
compdef() {{ }}
_files() {{ }}
_arguments() {{ print -r -- "$@" }}
eval "$(_HEADGATE_COMPLETE=source_zsh headgate)"
words=({words}) CURRENT={at}
_headgate_completion
"""
"""``compdef``, ``_files`` and ``_arguments`` are zsh's own. Here they show what the command's answer offers."""


@pytest.fixture(scope="module")
def shells() -> dict[str, str]:
    zsh = debian.unpacked("zsh", "bin/zsh", "install zsh") / "bin" / "zsh"
    return {"bash": "bash", "zsh": str(zsh)}


def offered(shell: str, script: str) -> str:
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    options = ["--norc", "--noprofile"] if shell == "bash" else ["--no-rcs"]
    done = subprocess.run(
        [shell, *options, "-c", script],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "PATH": path},
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("words", "names"),
    [("headgate fe", ["feed"]), ("headgate feed pa", ["pause"]), ("headgate feed list --out", ["--output"])],
)
def test_words_are_completed(shells: dict[str, str], words: str, names: list[str]) -> None:
    count = len(words.split())
    in_bash = offered(shells["bash"], BASH.format(words=words, at=count - 1))
    assert in_bash.split() == names
    in_zsh = offered(shells["zsh"], ZSH.format(words=words, at=count))
    for name in names:
        assert f'"{name}"' in in_zsh.replace("\\\\", "")


def test_a_word_that_bash_divides_is_completed_behind_its_last_sign(shells: dict[str, str]) -> None:
    words = "headgate feed list --output = ta"
    assert offered(shells["bash"], BASH.format(words=words, at=5)).split() == ["table"]


def test_a_typo_completes_to_nothing(shells: dict[str, str]) -> None:
    assert offered(shells["bash"], BASH.format(words="headgate fead li", at=2)).split() == []
    assert "list" not in offered(shells["zsh"], ZSH.format(words="headgate fead li", at=3))
