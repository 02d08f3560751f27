"""The functions of the command line, one module each; `triptych.cli` chooses among them.

`sample_<domain>.py` makes `triptych sample <domain>`; no table lists the names.
"""
