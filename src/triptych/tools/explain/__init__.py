"""Figures of lectures on attention, drawn from the project's own classes.

A figure is one function in `scripts/lectures/` with the decorator `figure`: its name is that of the
figure, the first line of its docstring says what the figure shows.
"""
