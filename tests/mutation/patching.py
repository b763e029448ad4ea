"""A flipped guard in a process that has imported everything already: its function gets the flipped code, no more.

What ran while modules were imported, and what belongs to no function, cannot be changed afterwards: such a guard needs
a process that imports its module flipped (``import_flipped``).
"""

import ast
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from types import CodeType, FunctionType, ModuleType

__all__ = ["Place", "flip_in_place", "import_flipped", "live_functions"]

Place = tuple[str, str, int]
"""Where a function stands: file, qualified name, first line."""


def live_functions(files: Sequence[str]) -> dict[Place, list[FunctionType]]:
    """Every function of ``files`` in this process. Before ``gc.freeze``: it hides them."""
    import gc

    wanted = frozenset(files)
    found: dict[Place, list[FunctionType]] = {}
    for thing in gc.get_objects():
        if isinstance(thing, FunctionType) and thing.__code__.co_filename in wanted:
            found.setdefault(_place(thing.__code__), []).append(thing)
    return found


def flip_in_place(tree: ast.Module, file: str, functions: dict[Place, list[FunctionType]]) -> None:
    """Give every live function of ``file`` the code it has in ``tree``, which differs in one guard."""
    for code in _outermost(compile(tree, file, "exec")):
        for function in functions.get(_place(code), ()):
            function.__code__ = code


def _place(code: CodeType) -> Place:
    return code.co_filename, code.co_qualname, code.co_firstlineno


def _outermost(code: CodeType) -> Iterator[CodeType]:
    """Functions that are not inside another; a class's body is none, its code is not optimised."""
    optimised = 0x1  # inspect.CO_OPTIMIZED
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            if inner.co_flags & optimised:
                yield inner
            else:
                yield from _outermost(inner)


class _Flipped(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, name: str, tree: ast.Module) -> None:
        self._name = name
        self._tree = tree

    def find_spec(
        self,
        fullname: str,
        path: Sequence[str] | None,
        target: ModuleType | None = None,  # noqa: ARG002 - the protocol's
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        found = importlib.machinery.PathFinder.find_spec(fullname, path)
        if found is None or found.origin is None:
            raise ModuleNotFoundError(fullname)
        return importlib.util.spec_from_file_location(fullname, found.origin, loader=self)

    def exec_module(self, module: ModuleType) -> None:
        assert module.__file__ is not None
        exec(compile(self._tree, module.__file__, "exec"), module.__dict__)  # noqa: S102 - this is what a trial is


def import_flipped(name: str, tree: ast.Module) -> None:
    """From now on this process imports ``tree`` as module ``name``; refuses if it has been imported already."""
    if name in sys.modules:
        raise RuntimeError(f"{name} is imported already: the trial would test the unflipped module")
    sys.meta_path.insert(0, _Flipped(name, tree))
