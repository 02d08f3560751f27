"""Checks and estimates of `scripts/gpu_check`."""
