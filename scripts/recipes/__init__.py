"""Recipes: programs that write text files which the sources of Triptych read.

`triptych data make NAME` runs the recipe in the file NAME.py: its class `Options` has the options,
and `main(options)` yields the name of each file and its rows. A row is a line, or a tuple of cells,
which tabs separate; bytes are the whole file. The docstring of the file says what it writes, from
what, under which licence.
The same options and inputs give the same files. A name that begins with `_` is no recipe.
"""
