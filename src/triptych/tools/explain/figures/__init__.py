"""The figures of `triptych explain`, one function each."""
