"""Models: a decoder-only model and an encoder-decoder model."""
