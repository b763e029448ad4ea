"""The coordinator as a process: role loops on threads, and the execution of its effects."""
