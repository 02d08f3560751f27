"""Data sets of pictures and drawings of them, which the domains of images share."""
