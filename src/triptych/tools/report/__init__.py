"""One self-contained HTML page about runs: settings, curves, samples, statistics, versions.

The readers of a run's folder (`run`, `metrics`, `settings`, `samples`, `pieces`) know no HTML. The
drawings (`curves`, `piano_roll`) compute coordinates. `page` fills the templates. No module imports
torch.
"""
