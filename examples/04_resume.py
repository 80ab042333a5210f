"""Stop in the middle of an epoch, go on with the very next batch, also on fewer replicas.

python examples/04_resume.py
"""

from __future__ import annotations

import json
from itertools import islice

import numpy as np

from lengthwise.loader import BucketBatchSampler

LENGTHS = np.random.default_rng(0).integers(10, 500, 5_000)
DONE = 30
"""Steps before the stop."""


def sampler_of(rank: int, num_replicas: int) -> BucketBatchSampler:
    """The same on every process, apart from which batches it takes."""
    return BucketBatchSampler(LENGTHS, max_tokens=8192, rank=rank, num_replicas=num_replicas)


def main() -> None:
    """On four replicas, then on four and on two."""
    whole = [list(sampler_of(rank, 4)) for rank in range(4)]
    stopped = [sampler_of(rank, 4) for rank in range(4)]
    seen = [list(islice(sampler, DONE)) for sampler in stopped]
    state = json.loads(json.dumps(stopped[0].state_dict()))  # a few numbers; any rank's will do
    print("saved:", {name: state[name] for name in ("epoch", "step", "num_replicas")})

    for num_replicas in (4, 2):
        resumed = [sampler_of(rank, num_replicas) for rank in range(num_replicas)]
        for sampler in resumed:
            sampler.load_state_dict(state)
        rest = [list(sampler) for sampler in resumed]
        if num_replicas == 4:
            assert rest == [batches[DONE:] for batches in whole]
        samples = [index for rank in (*seen, *rest) for batch in rank for index in batch]
        assert sorted(samples) == list(range(len(LENGTHS)))  # each once, nothing left out
        print(f"on {num_replicas} replicas: {len(rest[0])} more steps, every sample once")


if __name__ == "__main__":
    main()
