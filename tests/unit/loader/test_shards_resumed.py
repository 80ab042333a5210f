"""Runs over a few shards at a time, stopped and resumed."""

import numpy as np
import pytest

from lengthwise.loader.batch_sampler import BucketBatchSampler
from support.check_plan import Expected, check_batches
from support.loader_runs import flat, take
from support.sharded import KINDS, by_source, config_of


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("worlds", [(4, 4), (4, 3), (2, 5, 3)])
def test_a_run_is_resumed_on_any_number_of_replicas(kind, worlds):
    """Every sample once, whatever happens to the number of replicas; few shards all the same."""
    shards, config = by_source(num_shards=12, each=200), config_of(kind, shards_per_group=2)
    shard_of = np.repeat(np.arange(12), 200)
    seen, state, needed = [], None, []
    for place, world in enumerate(worlds):
        samplers = [
            BucketBatchSampler(shards, config=config, rank=rank, num_replicas=world)
            for rank in range(world)
        ]
        for sampler in samplers:
            if state is not None:
                sampler.load_state_dict(state)
        last = place == len(worlds) - 1
        steps = len(samplers[0]) if last else len(samplers[0]) // 3
        taken = [take(iter(sampler), steps) for sampler in samplers]
        for step in zip(*taken, strict=True):
            seen += step
            needed.append({int(shard) for batch in step for shard in shard_of[batch]})
        state = samplers[0].state_dict()
    assert sorted(flat(seen)) == list(range(2400))
    check_batches(seen, Expected(np.concatenate(shards).tolist(), samplers[0].config))
    first = {shard: min(i for i, s in enumerate(needed) if shard in s) for shard in range(12)}
    final = {shard: max(i for i, s in enumerate(needed) if shard in s) for shard in range(12)}
    spans = [sum(first[s] <= i <= final[s] for s in range(12)) for i in range(len(needed))]
    most = 12 if config.batch_sizing == "fixed" else 6
    assert max(spans) <= most


def test_an_exact_resume_yields_what_would_have_come():
    """On the same replicas, at every step."""
    for kind in ("pooled", "fixed"):
        shards, config = by_source(num_shards=8, each=100), config_of(kind)

        def make(shards=shards, config=config):
            return BucketBatchSampler(shards, config=config, rank=1, num_replicas=2)

        whole = list(make())
        for steps in range(1, len(whole)):
            sampler = make()
            take(iter(sampler), steps)
            other = make()
            other.load_state_dict(sampler.state_dict())
            assert list(other) == whole[steps:]
