"""A run's folder for the tests of the report."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
import written_runs
from written_runs import WriteRun


@pytest.fixture
def write_run(tmp_path: Path) -> WriteRun:
    """Write a run below the test's folder, given its name and settings of its model."""
    return partial(written_runs.write_run, tmp_path)
