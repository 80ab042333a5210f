"""Many batches at once are the same as each by itself."""

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from lengthwise.core.batches import Batches
from lengthwise.core.planner import build_plan
from lengthwise.errors import PlanError
from support.configs import cases


def slices(order, starts, sizes, indices):
    """The twin: a Python slice for each batch, and where they begin when laid in a row."""
    lists = [order[starts[i] : starts[i] + sizes[i]] for i in indices]
    edges = [sum(map(len, lists[:i])) for i in range(len(lists) + 1)]
    return [sample for batch in lists for sample in batch], edges


@given(sizes=st.lists(st.integers(1, 9), min_size=1, max_size=12), data=st.data())
def test_gathered_batches_are_slices_laid_in_a_row(sizes, data):
    """Batches may overlap, repeat and come in any order: they are only copied."""
    order = np.random.default_rng(0).permutation(sum(sizes) + 3).astype(np.uint32)
    starts = [data.draw(st.integers(0, order.size - size)) for size in sizes]
    indices = data.draw(st.lists(st.integers(0, len(sizes) - 1), max_size=20))
    rest = np.zeros(len(sizes), np.int64)
    batches = Batches(order, np.array(starts), np.array(sizes), rest, rest)
    samples, edges = batches.gather(np.array(indices, np.int64))
    assert (samples.tolist(), edges.tolist()) == slices(order.tolist(), starts, sizes, indices)


@settings(max_examples=60)
@given(case=cases(("bucketed", "random"), sizings=("fixed",)), data=st.data())
def test_any_batches_of_fixed_sizes_are_worked_out_together_as_each_alone(case, data):
    """Each alone goes by another kernel, which has a plain twin of its own."""
    try:
        plan = build_plan(
            case.lengths, case.config, epoch=case.epoch, num_replicas=case.num_replicas
        )
    except PlanError:
        assume(condition=False)
    places = st.integers(0, plan.num_batches - 1)
    indices = data.draw(st.lists(places, max_size=20))
    samples, edges = plan.source.gather(np.array(indices, np.int64))
    expected = [plan.batch(index).tolist() for index in indices]
    assert edges.tolist() == [sum(map(len, expected[:i])) for i in range(len(expected) + 1)]
    assert samples.tolist() == [sample for batch in expected for sample in batch]
