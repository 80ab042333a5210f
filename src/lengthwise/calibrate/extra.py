"""The one optional package that fitting needs."""

from __future__ import annotations

from lengthwise.errors import MissingDependencyError


def require_scipy() -> None:
    """Fail before the work, not after it, where SciPy is missing.

    Raises:
        MissingDependencyError: SciPy is not installed.
    """
    try:
        import scipy  # noqa: F401
    except ImportError:
        raise MissingDependencyError(
            "fitting costs needs SciPy: pip install 'lengthwise[calibrate]'"
        ) from None
