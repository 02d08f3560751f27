"""Tasks of a run on images, one file each."""
