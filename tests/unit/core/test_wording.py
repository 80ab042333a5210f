"""Numbers in words."""

import pytest

from lengthwise.core.wording import memory, percent


@pytest.mark.parametrize(
    ("num_bytes", "words"),
    [
        (0, "0 bytes"),
        (999, "999 bytes"),
        (1000, "1.0 KiB"),  # four digits are one too many
        (1024, "1.0 KiB"),
        (393_216, "384.0 KiB"),
        (3 * 2**30, "3.0 GiB"),
        (5 * 2**50, "5,120.0 TiB"),  # the largest unit there is
    ],
)
def test_memory_has_one_to_three_digits_and_a_unit(num_bytes, words):
    assert memory(num_bytes) == words


def test_percent_has_a_space_as_the_si_writes_it():
    assert (percent(0.8742), percent(0.12345, 2)) == ("87.4 %", "12.35 %")
