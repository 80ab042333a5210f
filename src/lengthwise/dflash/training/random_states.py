"""The global random generators. Nothing of ours draws from them; a target's own code might."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch


def random_states() -> dict[str, Any]:
    """Where every global generator stands; plain data."""
    kind, words, place, has_gauss, gauss = np.random.get_state()  # noqa: NPY002 - it is saved
    return {
        "python": random.getstate(),
        "numpy": [kind, np.asarray(words).tolist(), place, has_gauss, gauss],
        "torch": torch.get_rng_state().tolist(),
    }


def set_random_states(states: dict[str, Any]) -> None:
    """Put every generator where it was."""
    version, words, gauss = states["python"]
    random.setstate((version, tuple(words), gauss))
    kind, numbers, place, has_gauss, cached = states["numpy"]
    np.random.set_state((kind, np.asarray(numbers, np.uint32), place, has_gauss, cached))  # noqa: NPY002 - it is restored
    torch.set_rng_state(torch.tensor(states["torch"], dtype=torch.uint8))
