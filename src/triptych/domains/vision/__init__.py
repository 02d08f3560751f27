"""Images classified by an encoder of patches: the Vision Transformer."""
