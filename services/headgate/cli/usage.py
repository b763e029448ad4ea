"""Errors of usage, in our words."""

import typer
from pydantic import ValidationError

from headgate.config.wording import explained, one_of


def in_our_words(error: typer.BadParameter) -> str:
    """What is wrong with the value, and which there are."""
    if not isinstance(error.__cause__, ValidationError) or error.param is None or error.ctx is None:
        return error.message
    detail = error.__cause__.errors()[0]
    choices = [str(item.value) for item in error.param.shell_complete(error.ctx, "")]
    if detail["type"] == "value_error" and choices:
        return one_of(detail["input"], choices)
    return explained(detail)
