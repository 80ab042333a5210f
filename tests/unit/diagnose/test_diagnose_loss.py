"""How a loss jumps and which steps leap: curves whose parts are known, and brute force."""

from __future__ import annotations

import json

import numpy as np
import pytest

from lengthwise.diagnose import diagnose
from lengthwise.diagnose.loss import LossSeries, jumpiness, loss_series
from lengthwise.diagnose.records import RunRecords
from lengthwise.diagnose.smoothing import level, nearby_mean
from lengthwise.diagnose.spikes import find_spikes, robust_scores


def curve(shares, class_losses):
    """A series in which a step's loss is the mixture of its classes' losses."""
    count = len(shares)
    return LossSeries(
        np.arange(1, count + 1),
        (shares * class_losses).sum(axis=1),
        np.where(shares > 0, class_losses, 0.0),
        shares,
        tuple(f"class {k}" for k in range(shares.shape[1])),
    )


def falling(count):
    """A loss that falls from 6 to about 3."""
    return 3 + 3 * np.exp(-np.arange(count) / (count / 4))


def one_class_a_step(count, offsets, noise, seed=0):
    draw = np.random.default_rng(seed)
    shares = np.eye(len(offsets))[draw.integers(0, len(offsets), count)]
    losses = falling(count)[:, None] + offsets + draw.normal(0, noise, (count, 1))
    return curve(shares, losses)


def test_nearby_means_are_those_of_the_definition():
    draw = np.random.default_rng(1)
    values, weights = draw.normal(size=(40, 2)), draw.integers(0, 2, (40, 2)).astype(float)
    weights[:, 1] = 0
    found = nearby_mean(values, weights, 3.0)
    for t in range(40):
        near = [
            (2 ** (-abs(s - t) / 3.0) * weights[s, 0], values[s, 0]) for s in range(40) if s != t
        ]
        expected = sum(w * v for w, v in near) / sum(w for w, _ in near)
        assert found[t, 0] == pytest.approx(expected)
    assert (found[:, 1] == 0).all()


def test_the_level_is_the_weighted_parabola_through_the_others():
    draw = np.random.default_rng(2)
    values, weights = draw.normal(size=60), draw.integers(0, 3, 60).astype(float)
    found = level(values, weights, 4.0)
    places = np.arange(60)
    for t in range(60):
        near = weights * 2.0 ** (-abs(places - t) / 4.0) * (places != t)
        # numpy's weights multiply residuals, so theirs are roots of ours.
        parabola = np.polyfit(places - t, values, 2, w=np.sqrt(near))
        assert found[t] == pytest.approx(parabola[2], abs=1e-6)


def test_a_smooth_fall_has_no_distance_from_its_level():
    smooth = 5 - 0.02 * np.arange(100) + 1e-4 * np.arange(100) ** 2
    assert level(smooth, np.ones(100), 10.0) == pytest.approx(smooth, abs=1e-6)


def test_the_level_of_next_to_nothing_is_what_is_there():
    assert level(np.array([2.0]), np.ones(1), 5.0).tolist() == [2.0]
    assert level(np.array([2.0, 3.0]), np.array([1.0, 0.0]), 5.0)[0] == 2.0


@pytest.mark.parametrize(("offset", "noise"), [(0.6, 0.1), (0.2, 0.2), (0.1, 0.4)])
def test_with_one_class_a_step_it_is_the_law_of_total_variance(offset, noise):
    """Two classes at +-offset, equally often: variance offset^2 between, noise^2 within."""
    found = jumpiness(one_class_a_step(4000, np.array([offset, -offset]), noise))
    share = offset**2 / (offset**2 + noise**2)
    assert found.share_between == pytest.approx(share, abs=0.04)
    assert found.deviation**2 == pytest.approx(offset**2 + noise**2, rel=0.08)
    assert found.offsets == pytest.approx([offset, -offset], abs=0.03)


def test_both_parts_add_up_to_the_mean_square():
    found = jumpiness(one_class_a_step(500, np.array([0.3, 0.0, -0.5]), 0.2))
    assert found.between + found.within == pytest.approx(found.deviation**2)


def test_without_differences_between_classes_nothing_is_between():
    """Leaving out each step itself keeps noise from explaining itself, with few steps too."""
    shares = [
        jumpiness(one_class_a_step(60, np.zeros(5), 0.3, seed)).share_between for seed in range(40)
    ]
    assert abs(np.mean(shares)) < 0.05


def test_a_steady_mixture_makes_no_jumps_however_classes_differ():
    draw = np.random.default_rng(3)
    shares = np.tile([0.5, 0.3, 0.2], (400, 1))
    losses = falling(400)[:, None] + np.array([1.0, 0.0, -1.0]) + draw.normal(0, 0.1, (400, 3))
    assert abs(jumpiness(curve(shares, losses)).share_between) < 0.05


def test_mixtures_that_differ_are_between_by_their_variance():
    draw = np.random.default_rng(4)
    first = draw.uniform(0.2, 0.8, 3000)
    shares = np.column_stack([first, 1 - first])
    noise = draw.normal(0, 0.1, (3000, 1))
    losses = falling(3000)[:, None] + np.array([0.5, -0.5]) + noise
    between = np.var(first)  # offset of the mixture: 0.5 w - 0.5 (1 - w) = w - 0.5
    found = jumpiness(curve(shares, losses))
    assert found.share_between == pytest.approx(between / (between + 0.01), abs=0.05)


def test_planted_spikes_are_found_with_their_class_and_nothing_else():
    draw = np.random.default_rng(5)
    shares = np.tile([0.6, 0.4], (600, 1))
    losses = falling(600)[:, None] + np.array([0.2, -0.3]) + draw.normal(0, 0.05, (600, 2))
    losses[100, 1] += 3.0
    losses[101, 0] += 2.0
    losses[598, 0] += 2.0
    spikes, jumps = find_spikes(curve(shares, losses))
    assert [(spike.step, spike.length_class) for spike in spikes] == [(101, 1), (102, 0), (599, 0)]
    assert all(spike.loss > spike.usual + 0.5 for spike in spikes)
    # Without them the curve is as calm as it was made.
    assert jumps.num_steps == 600 - 10 - 3
    assert jumps.deviation == pytest.approx(0.05 * np.sqrt(0.36 + 0.16), rel=0.15)


def test_a_class_that_always_lies_high_is_no_spike():
    """One step in thirty is of a class far above: a jump, and what it is usually."""
    shares = np.eye(2)[(np.arange(600) % 30 == 7).astype(int)]
    noise = np.random.default_rng(6).normal(0, 0.05, (600, 1))
    spikes, jumps = find_spikes(curve(shares, falling(600)[:, None] + [0.0, 2.0] + noise))
    assert spikes == ()
    assert jumps.share_between > 0.9


def test_the_fall_at_the_beginning_is_no_spike():
    draw = np.random.default_rng(8)
    steep = 3 + 4 * np.exp(-np.arange(200) / 1.5) + draw.normal(0, 0.05, 200)
    assert find_spikes(curve(np.ones((200, 1)), steep[:, None]))[0] == ()


def test_noise_alone_has_no_spikes():
    for seed in range(10):
        assert find_spikes(one_class_a_step(800, np.array([0.5, -0.5]), 0.2, seed))[0] == ()


def test_a_curve_without_any_noise_has_none_either():
    assert (robust_scores(np.zeros(50)) == 0).all()
    assert find_spikes(curve(np.ones((50, 1)), np.full((50, 1), 2.0)))[0] == ()


def test_a_few_steps_say_nothing():
    assert find_spikes(one_class_a_step(29, np.array([0.0, 1.0]), 0.1)) == ((), None)


def rows_of(series, edges=((1, 9), (10, 99))):
    """The same as records of a run."""
    rows = []
    for step, loss, losses, shares in zip(
        series.steps, series.loss, series.losses, series.shares, strict=True
    ):
        row = {"step": int(step), "loss": float(loss), "skipped": 0}
        for place, (lo, hi) in enumerate(edges):
            row[f"loss_length_{lo}_{hi}"] = float(losses[place]) if shares[place] else None
            row[f"share_length_{lo}_{hi}"] = float(shares[place])
        rows.append(row)
    return rows


def test_records_become_the_series_that_they_were():
    series = one_class_a_step(80, np.array([0.5, -0.5]), 0.1)
    rows = rows_of(series)
    rows[5]["loss"] = None  # not finite
    found = loss_series(RunRecords.of(rows))
    assert found.steps.tolist() == [step for step in range(1, 81) if step != 6]
    assert found.loss == pytest.approx(np.delete(series.loss, 5))
    assert found.losses == pytest.approx(np.delete(series.losses, 5, axis=0))
    assert found.classes == ("1 to 9 tokens", "10 to 99 tokens")


def test_records_without_shares_are_not_split():
    rows = [{"step": 1, "loss": 2.0, "loss_length_1_9": 2.0}]
    assert loss_series(RunRecords.of(rows)) is None


def test_a_run_s_spikes_and_jumps_are_in_its_diagnosis(tmp_path):
    series = one_class_a_step(300, np.array([0.4, -0.4]), 0.1)
    rows = rows_of(series)
    rows[200]["loss"] += 3.0
    name = "loss_length_1_9" if rows[200]["share_length_1_9"] else "loss_length_10_99"
    rows[200][name] += 3.0
    rows[210] |= {"skipped": 1, "loss": None}
    text = "\n".join(map(json.dumps, rows))
    (tmp_path / "metrics.jsonl").write_text(text + "\n", encoding="utf-8")
    found = diagnose(tmp_path)
    assert [spike.step for spike in found.spikes] == [201]
    assert found.spikes[0].loss == rows[200]["loss"]
    assert found.skipped == (211,)
    assert found.jumps.share_between == pytest.approx(0.16 / 0.17, abs=0.05)
    assert found.advice.kind == "mixing"
    assert found.to_dict()["loss"]["classes"][0]["label"] == "1 to 9 tokens"


def test_a_monitor_s_log_is_split_by_bucket(tmp_path):
    draw = np.random.default_rng(7)
    buckets = draw.integers(0, 3, 400)
    losses = falling(400) + np.array([0.6, 0.0, -0.6])[buckets] + draw.normal(0, 0.1, 400)
    rows = [
        {
            "step": step,
            "epoch": 0,
            "bucket": int(bucket),
            "real_tokens": 900,
            "padded_tokens": 1500,
            "loss": float(loss),
            "adjusted_loss": float(loss),
            "tokens_per_second": 5000.0 if step % 50 == 49 else None,
        }
        for step, (bucket, loss) in enumerate(zip(buckets, losses, strict=True))
    ]
    path = tmp_path / "monitor.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)) + "\n", encoding="utf-8")
    found = diagnose(path)
    assert found.kind == "monitor"
    assert found.loop.efficiency == pytest.approx(0.6)
    assert found.loop.tokens_per_second == 5000
    # Variance of the three offsets is 0.24, of the noise 0.01.
    assert found.jumps.share_between == pytest.approx(0.24 / 0.25, abs=0.04)
    assert found.advice.kind == "padding"
    assert found.advice.gain == pytest.approx(0.98 / 0.6 - 1)
