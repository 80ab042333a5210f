"""Where the actors of a pipeline run: what they ask for, and whether the cluster has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from lengthwise.cluster.connect import require_ray
from lengthwise.core.wording import memory
from lengthwise.errors import ConfigError

if TYPE_CHECKING:
    from lengthwise.dflash.training.pipeline_section import PipelineSection
    from lengthwise.pipeline.arena import ArenaShape

Resources = dict[str, float]


def bundles_of(section: PipelineSection) -> list[Resources]:
    """What each actor asks for: target workers first, then drafter ranks."""
    kinds = [(section.targets, section.ray.target_resources)]
    kinds.append((section.drafters, section.ray.drafter_resources))
    return [
        request(device, section.ray.cpus, more) for devices, more in kinds for device in devices
    ]


def request(device: str, cpus: float, more: Resources) -> Resources:
    """Resources of one actor.

    Args:
        device: "cpu" or "cuda".
        cpus: cores.
        more: custom resources.
    """
    gpus = {"GPU": 1.0} if torch.device(device).type == "cuda" else {}
    return {"CPU": cpus, **gpus, **more}


def reserve_place(section: PipelineSection) -> Any:
    """A placement group with a bundle for every actor; all of them, or none.

    Raises:
        ConfigError: the cluster has not all of it within ``timeout_seconds``.
    """
    ray, bundles = require_ray(), bundles_of(section)
    group = ray.util.placement_group(bundles, strategy=section.ray.placement)
    if group.wait(section.timeout_seconds):
        return group
    ray.util.remove_placement_group(group)
    wanted, count = _words(_sum(bundles)), len(bundles)
    free, has = _words(ray.available_resources()), _words(ray.cluster_resources())
    raise ConfigError(
        f"the cluster has no place for the pipeline: wanted are {wanted} in {count} bundles "
        f"({section.ray.placement}), free are {free}, of {has}; given up after "
        f"{section.timeout_seconds:,.0f} seconds (pipeline.timeout_seconds)"
    )


def check_object_stores(group: Any, section: PipelineSection, shape: ArenaShape) -> None:
    """Whether features that wait have room where targets run.

    Raises:
        ConfigError: they have not; Ray would write them to disk.
    """
    ray = require_ray()
    table = ray.util.placement_group_table(group)["bundles_to_node_id"]
    hosts = {table[bundle] for bundle in range(len(section.targets))}
    nodes = [node for node in ray.nodes() if node["Alive"] and node["NodeID"] in hosts]
    room = int(sum(node["Resources"].get("object_store_memory", 0) for node in nodes))
    if room < shape.num_bytes:
        raise ConfigError(
            f"the features that wait between target and drafter need {memory(shape.num_bytes)}, "
            f"the object stores of machines with targets ({len(nodes)}) have {memory(room)}: lower "
            f"remix.pool_batches or pipeline.prefetch_batches, or give Ray more "
            f"(ray start --object-store-memory BYTES)"
        )


def _sum(bundles: list[Resources]) -> Resources:
    total: Resources = {}
    for bundle in bundles:
        for name, amount in bundle.items():
            total[name] = total.get(name, 0.0) + amount
    return total


def _words(resources: Resources) -> str:
    """Cores, GPUs and custom resources; not those that Ray adds for itself."""
    hidden = ("node:", "bundle_group", "object_store_memory", "memory")
    shown = {
        name: amount
        for name, amount in sorted(resources.items())
        if not name.startswith(hidden) and "_group_" not in name
    }
    return ", ".join(f"{amount:g} {name}" for name, amount in shown.items()) or "nothing"
