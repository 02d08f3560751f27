"""Images by a Self-Attention GAN (Zhang et al. 2018, arXiv 1805.08318)."""
