"""Figures of lectures on attention, drawn from the project's own classes.

One module in `figures/` is one figure: its name is the module's name with hyphens, the first line
of its docstring says what the figure shows, and its `FIGURE` draws it. A new figure is a new file.
"""
