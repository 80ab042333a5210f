"""The pipeline on Ray learns what it learns on one machine."""

from __future__ import annotations

import pytest

from support.dflash_runs import small_run_folder
from support.local_ray import running_ray
from support.pipeline_runs import quick_processes, run
from support.ray_runs import check_nothing_left_on_ray, run_on_ray

pytestmark = pytest.mark.slow

TWO_AND_TWO = {"workers": 2, "ranks": 2}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return small_run_folder(tmp_path_factory.mktemp("run"))


@pytest.fixture(scope="module", autouse=True)
def cluster():
    with running_ray(num_cpus=8) as ray:
        yield ray


@pytest.fixture(scope="module")
def expected(folder, tmp_path_factory):
    """The same run by the engine of one machine."""
    with quick_processes():
        _, seen = run(folder, tmp_path_factory.mktemp("whole"), **TWO_AND_TWO)
    return seen


def test_losses_are_those_of_one_machine_to_the_last_bit(folder, tmp_path, expected):
    outcome, seen = run_on_ray(folder, tmp_path, **TWO_AND_TWO)
    assert not outcome.interrupted
    assert seen.losses == expected.losses
    check_nothing_left_on_ray()
