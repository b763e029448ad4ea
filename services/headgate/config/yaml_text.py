"""YAML that a user has written, read so that no part of it is lost silently."""

from typing import Any, Final

import yaml

__all__ = ["YamlError", "load_yaml", "yaml_fault"]

_OF_A_VALUE: Final = (ValueError, LookupError, AttributeError)
"""What PyYAML raises for a value that is not of its type, such as the date 2026-02-30, or ``!!bool x``."""

_HINTS: Final = {
    "found character '\\t' that cannot start any token": "a tab indents the line, which YAML does not allow. "
    "Use spaces",
    "but found another document": "a second document begins there (---). Write one document per file",
    "mapping values are not allowed here": "a colon is where YAML allows none. Check the indentation, and put a text "
    "that contains a colon and a space in quotes",
    "found unexpected end of stream": "the text ends inside quotes. Close them",
}
"""PyYAML's words → what is wrong, and what to do."""


class YamlError(ValueError):
    """The text cannot be read. The message names the line, the reason and what to do."""


class _Loader(yaml.SafeLoader):
    """Refuses a key that is given twice, of which SafeLoader keeps the last, and names the line of a bad value."""

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        lines: dict[tuple[str, str], int] = {}
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                mark, name = key.start_mark, (key.tag, key.value)
                if name in lines:
                    why = f"{key.value!r} is given twice, first in line {lines[name]}. Remove one of them"
                    raise yaml.composer.ComposerError(None, None, why, mark)
                lines[name] = mark.line + 1
        return node

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except _OF_A_VALUE as error:
            why = f"the value is not valid: {error}. Correct it, or put a text in quotes"
            raise yaml.constructor.ConstructorError(None, None, why, node.start_mark) from error


def load_yaml(text: str | bytes) -> Any:
    """The only document of the text; None if it is empty. Raises YamlError."""
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506 - a SafeLoader
    except yaml.YAMLError as error:
        raise YamlError(yaml_fault(error)) from error
    except RecursionError as error:
        raise YamlError("its brackets are nested too deeply. Check that each is closed") from error


def yaml_fault(error: yaml.YAMLError) -> str:
    """PyYAML's error in one line: where, what is wrong and, as far as is known, what to do."""
    if isinstance(error, yaml.reader.ReaderError):
        return f"it is not YAML: {error.reason}, at position {error.position}. Remove what is there"
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem is None:
        return f"it is not YAML: {' '.join(str(error).split())}"
    mark = error.problem_mark or error.context_mark
    where = "" if mark is None else f"line {mark.line + 1}, column {mark.column + 1}: "
    hint = _HINTS.get(error.problem)
    return f"it is not valid YAML: {where}{hint or ', '.join(filter(None, (error.problem, error.context)))}"
