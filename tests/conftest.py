"""Settings for the whole suite."""

from __future__ import annotations

import os
import signal

import pytest
from hypothesis import HealthCheck, settings

# No deadline: a kernel's first call compiles it, and no test asserts a time.
settings.register_profile(
    "local", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
# CI draws the same examples in every run, so that a failure there is the change's own.
settings.register_profile("ci", settings.get_profile("local"), derandomize=True, database=None)
settings.load_profile("ci" if os.environ.get("CI") else "local")

# In the background of a shell script SIGINT is ignored, also by every command that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="module")
def local_ray():
    """The module ``ray``, connected to a small Ray that ends with the test's module.

    A process has one connection, and other modules start clusters of their own.
    """
    from support.local_ray import running_ray

    with running_ray() as ray:
        yield ray


def pytest_terminal_summary(terminalreporter):
    """Say how much of the pages' code runs, whenever pages were tested."""
    reports = [one for found in terminalreporter.stats.values() for one in found]
    if any("integration/test_pages.py" in str(getattr(one, "nodeid", "")) for one in reports):
        from support.page_code import summary

        terminalreporter.write_line(summary())
