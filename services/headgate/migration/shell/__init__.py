"""The migration owner as a process: the runtime's service with the scheduler's machine, and its effects."""
