"""Loggers: CSV and wandb."""
