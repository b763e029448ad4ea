"""What goes wrong while real servers are brought up, in words a newcomer can act on."""


class EmbeddedError(RuntimeError):
    """A server cannot be started or stopped; the message says what, where and what to do."""


class ArtifactError(EmbeddedError):
    """A pinned file is missing, altered or cannot be fetched; nothing unverified is ever used."""


class NoJavaError(EmbeddedError):
    """No Java runtime that is new enough; the message lists where it was looked for."""


class PortTakenError(EmbeddedError):
    """Somebody else listens on the port asked for."""
