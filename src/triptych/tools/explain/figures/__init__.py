"""The figures of `triptych explain`, one module each."""
