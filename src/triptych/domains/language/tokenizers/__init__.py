"""Tokenizers of text: one file for each kind; `base` has what they share."""
