"""Optimisers and learning-rate schedules: parts of a run, each named by its class path."""
