"""Loggers: CSV, wandb and media files."""
