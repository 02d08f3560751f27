"""Loggers: CSV, wandb and TensorBoard."""
