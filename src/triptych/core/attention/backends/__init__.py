"""Implementations of attention, and the dispatch that chooses between them."""
