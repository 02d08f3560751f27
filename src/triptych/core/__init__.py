"""The core: attention, positions, layers, transformers and output heads, on torch alone."""
