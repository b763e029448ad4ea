"""Names of the feeds that a migration creates: into its copy, and into the old table."""

from hashlib import sha256


def forth_feed(migration: str) -> str:
    """The feed into a migration's copy."""
    return f"migration-{sha256(migration.encode()).hexdigest()[:8]}"


def back_feed(migration: str) -> str:
    """The feed into the table before a completed migration."""
    return f"{forth_feed(migration)}-back"


def feed_of(migration: str, reverts: str | None) -> str:
    """The feed that brings a migration's copy up to date. A revert continues with that of the reverted one."""
    return forth_feed(migration) if reverts is None else back_feed(reverts)
