"""Images: pixels in raster order, or block by block."""
