"""Compiled loops. The only place that imports numba; imported inside the functions that call it.

Every kernel takes and returns flat arrays, releases the GIL, is cached on disk, and has a
plain-Python twin in ``tests/support/twins.py``. Kernels use integers, and of floating point only
``+ - * /`` and ``sqrt``, which IEEE 754 fixes to the last bit: so a plan is the same everywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numba

P = ParamSpec("P")
R = TypeVar("R")

if TYPE_CHECKING:
    from collections.abc import Callable


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile with numba: cached, without the GIL, without reordering of floating point."""
    compiled: Any = numba.njit(cache=True, nogil=True, fastmath=False, error_model="numpy")
    return compiled(function)  # type: ignore[no-any-return]
