"""One promise for every integration, held on two real processes and over a restart.

Three epochs; nobody calls ``set_epoch``. In epoch 1 the run saves a checkpoint by its framework's
own means, and goes on. New processes resume from it. What is compared is the numbers of the samples
that the model got.
"""

import pytest

from lengthwise.loader import BucketBatchSampler
from support.loader_runs import flat
from support.trainer_kinds import OPTIONS, all_lengths
from support.trainer_ranks import NUM_SAMPLES, run_ranks

pytestmark = pytest.mark.slow

FRAMEWORKS = [
    ("ddp", "torchdata"),
    ("accelerate",),
    ("lightning", "fabric"),
    ("transformers",),
]
EPOCHS, STOP = 3, 4
RUN = {"epochs": EPOCHS, "save_after": STOP, "num_workers": 2}
"""Workers fetch ahead, so that the sampler is ahead of training (B36)."""


def check_whole(ranks):
    """Every sample once an epoch (B25), as many batches on both ranks (B22), other ones (B30)."""
    for epoch in range(EPOCHS):
        first, second = (seen["epochs"][epoch] for seen in ranks)
        assert len(first) == len(second)
        assert sorted(flat(first + second)) == list(range(NUM_SAMPLES))
    for seen in ranks:
        assert seen["len"] == len(seen["epochs"][0])  # B26
        assert len({str(batches) for batches in seen["epochs"].values()}) == EPOCHS


def check_rest(rest, whole, stop=STOP):
    """Not a batch again and none left out, in epoch 1 and not in 0 (B33); then all of 2 (B34)."""
    for resumed, seen in zip(rest, whole, strict=True):
        assert set(resumed["epochs"]) == {1, 2}
        assert resumed["epochs"][1] == seen["epochs"][1][stop:]
        assert resumed["epochs"][2] == seen["epochs"][2]


@pytest.mark.parametrize("kinds", FRAMEWORKS, ids="-".join)
def test_a_run_is_whole_and_a_resumed_one_is_its_rest(kinds, tmp_path):
    """B22, B25, B26, B29, B30, B33, B34, B36; for ``skip_first_batches`` too."""
    whole = run_ranks(tmp_path / "whole", *kinds, **RUN)
    more = ("accelerate-skip",) if "accelerate" in kinds else ()
    rest = run_ranks(tmp_path / "rest", *kinds, *more, resume=tmp_path / "whole", **RUN)
    for kind in kinds:
        check_whole(whole[kind])
    for kind, ranks in rest.items():
        check_rest(ranks, whole[kind.removesuffix("-skip")])
    if "ddp" in kinds:
        # B32: the second checkpoint counts from the epoch's start, not from the first one.
        again = run_ranks(tmp_path / "again", *kinds, resume=tmp_path / "rest", **RUN)
        for kind in kinds:
            check_rest(again[kind], whole[kind], stop=2 * STOP)
    for kind in {"accelerate", "lightning", "transformers"}.intersection(kinds):
        # They accumulate over two batches; also the last ones of an epoch make a step, and the
        # four that were done in epoch 1 made two.
        per_epoch = -(-whole[kind][0]["len"] // 2)
        assert {seen["steps"] for seen in whole[kind]} == {EPOCHS * per_epoch}
        assert {seen["steps"] for seen in rest[kind]} == {2 * per_epoch - 2}


def test_the_number_of_batches_would_vary_if_it_were_left_alone():
    """Else it would not be known that trainers with a fixed number of them got all."""
    sampler = BucketBatchSampler(all_lengths(), **OPTIONS, num_replicas=2, rank=0, num_threads=1)
    assert len({sampler.planner.plan(epoch).num_steps for epoch in range(EPOCHS)}) > 1
