"""Tokenizers of music: one file per way to write music as tokens."""
