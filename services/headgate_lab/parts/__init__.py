"""Headgate's services as processes, with their settings, for demos, campaigns and benchmarks."""
