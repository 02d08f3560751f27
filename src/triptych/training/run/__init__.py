"""A run: its settings, folder, checks, checkpoints and resumption."""
