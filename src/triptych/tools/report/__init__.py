"""One self-contained HTML page about runs: settings, curves, samples, statistics, versions.

The readers of a run's folder (`run`, `metrics`, `samples`) know no HTML, `curves` draws, and `page`
fills the templates. No module imports torch.
"""
