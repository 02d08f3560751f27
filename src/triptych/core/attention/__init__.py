"""Attention: one variant, one file; each is a config that builds the module beside it."""
