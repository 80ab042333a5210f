"""Records of training runs as the commands write them, made without training."""

from __future__ import annotations

import math
import random


def step_records(count=60, *, positions=7, every=2):
    """A loss that falls from 5 to about 3, classes of lengths apart by a constant."""
    draw = random.Random(0)
    records = []
    for step in range(every, count * every + 1, every):
        loss = 3 + 2 * math.exp(-step / 40) + draw.gauss(0, 0.1)
        records.append(
            {
                "step": step,
                "epoch": step // 50,
                "loss": loss,
                "streak": 1 + step / (count * every),
                "accuracy": 0.3 + step / (5 * count * every),
                **{f"accuracy_{k}": (0.5 + step / 1000) / k for k in range(1, positions + 1)},
                "learning_rate": 6e-4,
                "grad_norm": 1 + draw.random(),
                "skipped": int(step == 3 * every),
                "num_samples": 9,
                "num_blocks": 64,
                "real_tokens": 270,
                "tokens_per_second": 1500 + 100 * draw.random(),
                "wait_seconds": 0.03,
                "learn_seconds": 0.14,
                "adjusted_loss": loss,
                "loss_length_4_12": loss + 0.5,
                "loss_length_13_60": loss - 0.5,
            }
        )
    return records


def evaluation_records(steps=(40, 80, 120), *, positions=7):
    """Acceptance that rises; the last one compares with plain decoding."""
    return [
        {
            "step": step,
            "eval_loss": 4 - step / 100,
            "eval_accuracy": 0.3,
            **{f"eval_accuracy_{k}": 0.4 / k for k in range(1, positions + 1)},
            "eval_streak": 1.5 + place / 10,
            "eval_tokens_per_verify": 1.25 + place / 4,
            "eval_num_accepted": 0.25 + place / 4,
            "eval_standard_error": 0.05,
            "eval_speedup": 1.4 if step == steps[-1] else None,
            "eval_mismatches": 0 if step == steps[-1] else None,
            "eval_num_prompts": 16,
            "eval_seconds": 2.0,
        }
        for place, step in enumerate(steps)
    ]


def flow_records(count=40, *, begin=0.0, targets=2, drafters=1, bottleneck="targets"):
    """A pipeline in which targets are busy and the drafter waits; one record a second."""
    return [
        {
            "step": int(second),
            "flow_seconds": begin + second,
            "flow_prefetch": 4,
            "flow_prefetch_room": 4,
            "flow_hidden_states": second % 2,
            "flow_pages_used": 30 + second % 5,
            "flow_num_pages": 74,
            "flow_num_batches": 10 * second,
            "flow_num_reruns": 0,
            "flow_num_bad": 0,
            "flow_tokens_per_second": 2400.0 if second > 1 else None,
            "flow_padded_tokens_per_second": 2500.0 if second > 1 else None,
            "flow_learnt_tokens_per_second": 2250.0 if second > 1 else None,
            "flow_predicted_tokens_per_second": 2500.0 if second > 1 else None,
            "flow_overall_tokens_per_second": 2300.0,
            "flow_overall_padded_tokens_per_second": 2420.0,
            "flow_efficiency": 0.95,
            "flow_planned_efficiency": 0.96,
            **{f"flow_busy_target_{n}": 0.9 + n / 100 for n in range(targets)},
            **{f"flow_overall_busy_target_{n}": 0.88 for n in range(targets)},
            **{f"flow_busy_drafter_{n}": 0.4 for n in range(drafters)},
            **{f"flow_overall_busy_drafter_{n}": 0.41 for n in range(drafters)},
            "flow_bottleneck": bottleneck if second > 10 else None,
        }
        for second in range(1, count + 1)
    ]


def pipeline_records():
    """A whole run through a pipeline, in the order of its steps."""
    records = [*step_records(), *evaluation_records(), *flow_records()]
    return sorted(records, key=lambda record: record["step"])
