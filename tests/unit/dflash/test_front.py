"""The front of ``lengthwise.dflash``: what it promises is there, and comes when it is asked for."""

import subprocess
import sys

import pytest

import lengthwise.dflash as front


@pytest.mark.parametrize("name", front.__all__)
def test_every_public_name_can_be_imported(name):
    # The table names modules in words; a renamed function would only fail for a user.
    assert getattr(front, name).__name__ == name
    assert set(front.__all__) == set(front._HOME)


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="has no attribute 'teach'"):
        front.teach  # noqa: B018 - the access is the test


def test_reading_a_training_config_loads_no_torch():
    """`lengthwise dflash train --print-config` answers at once, on a laptop without a GPU too."""
    code = (
        "import sys; from lengthwise.dflash.training.config import parse_train_config; "
        "from lengthwise.dflash.training.describe import describe_defaults; describe_defaults(); "
        "print('torch' in sys.modules, 'transformers' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert done.stdout.split() == ["False", "False"]
