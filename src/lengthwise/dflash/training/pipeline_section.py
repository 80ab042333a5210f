"""The section of a training config that says where targets and drafter run.

The descriptions are what ``lengthwise dflash train --print-config`` prints beside each field.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from pydantic import Field

from lengthwise.dflash.training.sections import Count, Section

if TYPE_CHECKING:
    from collections.abc import Iterator


class RaySection(Section):
    """Of pipeline.engine: ray. Where actors run, and how many losses are made good."""

    address: str | None = Field(
        None,
        description="auto: the cluster of this machine; host:port of another; local: a Ray of this "
        "machine alone; default: what RAY_ADDRESS says, else local.",
    )
    device: Literal["cuda", "cpu"] = Field(
        "cuda", description="What num_targets and num_drafters run on."
    )
    cpus: float = Field(1.0, gt=0, description="Cores that each process asks for.")
    target_resources: dict[str, float] = Field(
        {}, description="What a target asks for besides, such as {accelerator_type:H100: 0.001}."
    )
    drafter_resources: dict[str, float] = Field({}, description="The same of a drafter rank.")
    placement: Literal["PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"] = Field(
        "PACK", description="On few machines or on many, as Ray's placement groups have it."
    )
    max_replacements: int = Field(
        20, ge=0, description="Lost target workers that others take the place of, in a run."
    )
    max_restarts: int = Field(
        5, ge=0, description="Times that all ranks go on from the newest checkpoint, in a run."
    )


class PipelineSection(Section):
    """Devices that run the target, and devices that train the drafter. None: one does both."""

    engine: Literal["local", "ray"] = Field(
        "local", description="local: processes of this machine; ray: actors on several machines."
    )
    target_devices: tuple[str, ...] = Field(
        (), description="One target worker each, such as [cuda:0, cuda:1]; [cpu, cpu] works too."
    )
    drafter_devices: tuple[str, ...] = Field(
        (), description="One drafter rank each. Gradients are summed over them."
    )
    num_targets: Count | None = Field(
        None, description="With engine: ray, instead of target_devices: on ray.device."
    )
    num_drafters: Count | None = Field(
        None, description="With engine: ray, instead of drafter_devices: on ray.device."
    )
    prefetch_batches: Count | None = Field(
        None,
        description="Target batches under way or ready beyond the next step's; default: two a "
        "target, which keep it busy. Each costs max_tokens x taps x hidden size x bytes of memory.",
    )
    page_tokens: Count = Field(
        64,
        description="Features wait in pages of this many tokens; half a page a sample is lost.",
    )
    timeout_seconds: float = Field(
        600.0,
        gt=0,
        description="A process that owes an answer for longer is taken for hung, and killed. "
        "Longer than any batch, evaluation or checkpoint takes.",
    )
    probe_rounds: int = Field(
        2,
        ge=0,
        description="Times that each device runs a few shapes of the plan before the run, to say "
        "what throughput to expect; 0 for no forecast.",
    )
    max_bad_samples: int = Field(
        10, ge=0, description="Samples that may turn out bad, and be left out, before a run ends."
    )
    ray: RaySection = Field(default_factory=RaySection)

    @property
    def targets(self) -> tuple[str, ...]:
        """The device of every target worker; on Ray its kind."""
        return self._devices(self.target_devices, self.num_targets)

    @property
    def drafters(self) -> tuple[str, ...]:
        """The device of every drafter rank; on Ray its kind."""
        return self._devices(self.drafter_devices, self.num_drafters)

    def _devices(self, named: tuple[str, ...], count: int | None) -> tuple[str, ...]:
        if self.engine == "local":
            return named
        # Which of a machine's devices it is Ray decides.
        return tuple(name.split(":")[0] for name in named) or (self.ray.device,) * (count or 0)

    def problems(self) -> Iterator[str]:
        """What does not go together."""
        if self.engine == "local":
            for name in ("num_targets", "num_drafters"):
                if getattr(self, name) is not None:
                    yield f"pipeline.{name} is of pipeline.engine: ray; name devices instead"
        else:
            for kind in ("target", "drafter"):
                if getattr(self, f"{kind}_devices") and getattr(self, f"num_{kind}s") is not None:
                    yield (
                        f"pipeline.{kind}_devices and pipeline.num_{kind}s say the same: give one "
                        f"of them"
                    )
            if (self.ray.address or "").startswith("ray://"):
                yield (
                    "pipeline.ray.address: a pipeline runs inside its cluster; start it there, for "
                    "example with `ray job submit -- lengthwise dflash train CONFIG`"
                )
            if not self.targets and not self.drafters:
                yield "pipeline.engine: ray needs pipeline.num_targets and pipeline.num_drafters"
        if bool(self.targets) != bool(self.drafters):
            yield (
                "pipeline.target_devices and pipeline.drafter_devices belong together: give both "
                "or neither"
            )

    @property
    def num_ahead(self) -> int:
        """``prefetch_batches``, or its default."""
        return self.prefetch_batches or 2 * len(self.targets)
