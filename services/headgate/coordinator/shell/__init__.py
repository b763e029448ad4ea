"""The coordinator as a process: role loops on threads, and its effects performed."""
