"""Attention: one file per variant, with its config and its mask pattern."""
