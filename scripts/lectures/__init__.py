"""Figures of lectures: programs that draw pictures with the classes of Triptych.

`triptych explain NAME` draws the function NAME with the decorator `figure`. The first line of its
docstring says what the figure shows. The same options give the same picture.
"""
