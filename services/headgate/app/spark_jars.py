"""Which jars of Spark's Kafka connector an agent uses. Imports no Spark, so that commands may ask."""

from pathlib import Path

from headgate.config.settings import SettingsError
from headgate.provisioning.artifacts import ensure

__all__ = ["chosen_jars"]


def chosen_jars(setting: str) -> tuple[Path, ...]:
    """The connector's jars: a directory's, those listed, or our cache's (fetched if they are not there).

    Raises SettingsError, ArtifactError.
    """
    if not setting:
        return ensure("spark-kafka")
    folder = Path(setting)
    jars = sorted(folder.glob("*.jar")) if folder.is_dir() else [Path(part.strip()) for part in setting.split(",")]
    missing = [str(jar) for jar in jars if not jar.is_file()]
    if missing or not jars:
        raise SettingsError(f"HEADGATE_SPARK__JARS: {', '.join(missing) or f'{folder} holds no jar'}: does not exist")
    return tuple(jars)
