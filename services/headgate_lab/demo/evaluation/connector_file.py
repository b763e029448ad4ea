"""The file of a connector's configuration, which a user may have edited."""

from pathlib import Path

import msgspec

from headgate.app.exit_codes import CommandError, ExitCode

__all__ = ["connector_options"]


def connector_options(file: Path) -> dict[str, str]:
    """The connector's options as Kafka Connect takes them, all as texts. Raises CommandError."""
    try:
        found = msgspec.json.decode(file.read_bytes(), type=dict[str, object])
    except (OSError, msgspec.DecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise CommandError(
            ExitCode.SETTING,
            f"{file} is not the configuration of a connector, which is a JSON object: {why}. Correct it, or delete it "
            "and run the command again, which then writes it",
        ) from error
    texts = {name: value for name, value in found.items() if isinstance(value, str)}
    for name in found.keys() - texts.keys():
        raise CommandError(
            ExitCode.SETTING, f'{file}: {name} must be a text. Put its value into quotes, such as {{"{name}": "1"}}'
        )
    return texts
