"""The owner of generations: one service for change logs and timestamp sets."""
