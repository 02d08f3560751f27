"""Types that decoding, training and the domains share; imports no heavy library."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

Dtype: TypeAlias = Literal["fp32", "bf16", "int8"]
"""Number format of the weights of a model in use."""

Progress: TypeAlias = Callable[[int, int], object]
"""Called with (units done, units in all, or 0 where that is unknown)."""
