"""How ``lengthwise calibrate`` shows its result in a terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

from lengthwise.cli.output import print_line, print_table
from lengthwise.core.cost import TableTime

if TYPE_CHECKING:
    from lengthwise.calibrate import Budget, Calibration, CostFit, MemoryFit

LARGE_ERROR = 0.1
"""Above this relative error of one batch a prediction is a rough one."""
LARGE_DISTURBANCE = 0.02
_STEPS = {"forward": "forward", "forward_backward": "forward and backward"}


def doubts_of(found: Calibration) -> list[str]:
    """What speaks against relying on a calibration, one sentence each."""
    fit, doubts = found.fit, []
    if fit.noise > LARGE_ERROR:
        doubts.append(
            f"repeats of one shape scatter by {fit.noise:.0%}: something else uses this machine; "
            f"measure again when it is idle, or raise --repeats"
        )
    if fit.shape_error > LARGE_ERROR:
        doubts.append(
            f"the fit misses shapes that it has not seen by {fit.shape_error:.0%}; raise "
            f"--num-shapes, so that a table can follow them"
        )
    if fit.disturbance > LARGE_DISTURBANCE:
        doubts.append(
            f"rare slow steps added {fit.disturbance:.1%} to the time measured; they are not in "
            f"the cost, so a run may take that much longer"
        )
    return doubts


def print_calibration(found: Calibration, budget: Budget | None) -> None:
    """Print the fit, every shape with what the fit says of it, the error bar and the memory."""
    print_line(f"{_STEPS[found.what]} in {found.dtype} on {found.device}: {found.machine}\n")
    _print_shapes(found.fit)
    print_line()
    _print_cost(found.fit)
    print_line(
        f"One batch: ±{found.fit.relative_error:.1%} (shapes it has not seen "
        f"±{found.fit.shape_error:.1%}, noise of a step ±{found.fit.noise:.1%}; "
        f"{found.fit.num_outliers} of {len(found.measurements)} timings left out as disturbed)"
    )
    if found.memory is not None:
        _print_memory(found.memory)
    if budget is not None:
        _print_budget(budget)


def _print_shapes(fit: CostFit) -> None:
    fitted = fit.seconds(fit.batch_size, fit.longest)
    print_table(
        "Measured shapes",
        ("samples", "longest", "padded tokens", "ms", "fitted ms", "residual", "unseen"),
        [
            (
                f"{size:,}",
                f"{longest:,}",
                f"{size * longest:,}",
                f"{measured * 1e3:,.2f}",
                f"{here * 1e3:,.2f}",
                f"{here / measured - 1:+.1%}",
                f"{error:+.1%}",
            )
            for size, longest, measured, here, error in zip(
                fit.batch_size.tolist(),
                fit.longest.tolist(),
                fit.measured_seconds.tolist(),
                fitted.tolist(),
                fit.left_out_errors.tolist(),
                strict=True,
            )
        ],
        text_columns=0,
    )
    print_line("residual: fitted against measured; unseen: the same, fitted without that shape")


def _print_cost(fit: CostFit) -> None:
    cost = fit.cost
    if isinstance(cost, TableTime):
        print_line(
            f"seconds = a table of {len(cost.longest)} longest x {len(cost.tokens)} counts of "
            f"padded tokens: fixed + a*n*m + b*n*m^2 predicts unseen shapes worse"
        )
        return
    print_line(
        f"seconds = {cost.fixed_seconds:.4g} + {cost.seconds_per_token:.4g} * n*m "
        f"+ {cost.seconds_per_token_squared:.4g} * n*m^2"
    )


def _print_memory(memory: MemoryFit) -> None:
    print_line(
        f"peak bytes <= {memory.fixed_bytes:.4g} + {memory.bytes_per_token:.4g} * n*m "
        f"+ {memory.bytes_per_token_squared:.4g} * n*m^2 (on average "
        f"{memory.relative_slack:.1%} above what was measured)"
    )


def _print_budget(budget: Budget) -> None:
    print_line()
    print_table(
        "What memory allows",
        ("longest", "batch size", "padded tokens", "ran with", "limited by"),
        [
            (
                f"{item.longest:,}",
                f"{item.batch_size:,}",
                f"{item.batch_size * item.longest:,}",
                f"{item.fitted_batch_size:,}",
                "memory" if item.limited else "the search's end",
            )
            for item in budget.buckets
        ],
        text_columns=0,
    )
    failed = sum(not probe.fits for probe in budget.probes)
    print_line(
        f"Largest safe --max-tokens: {budget.max_tokens:,} ({budget.margin:.0%} taken off; "
        f"{len(budget.probes)} steps tried, {failed} ran out of memory)"
    )
