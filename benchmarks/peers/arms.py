"""Every row of the comparison: which adapter, and with which of its settings."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from importlib import import_module


@dataclass(frozen=True, slots=True)
class Arm:
    """One row, not yet imported."""

    label: str
    module: str
    options: dict[str, str] = field(default_factory=dict)

    def load(self):
        """Import the adapter and its peer.

        Raises:
            ImportError: the peer is not installed, or does not import.
        """
        adapter = import_module(f"peers.adapters.{self.module}")
        return Loaded(
            adapter.about(**self.options),
            adapter.prepare,
            partial(adapter.make, **self.options),
        )


@dataclass(frozen=True, slots=True)
class Loaded:
    """An adapter with its settings: ``prepare(lengths)``, then ``make(data, case, replica)``."""

    about: object
    prepare: object
    make: object


ARMS = {
    "pooled": Arm("**lengthwise, default**", "own", {"plan": "pooled"}),
    "six": Arm("**lengthwise, six buckets**", "own", {"plan": "six"}),
    "windowed": Arm("**lengthwise, windows of 1024**", "own", {"plan": "windowed"}),
    "fixed": Arm("**lengthwise, six buckets, fixed sizes**", "own", {"plan": "fixed"}),
    "lhotse": Arm("Lhotse DynamicBucketingSampler", "lhotse_dynamic"),
    "fairseq": Arm("fairseq batch_by_size", "fairseq_batches"),
    "speechbrain": Arm("SpeechBrain DynamicBatchSampler", "speechbrain_dynamic"),
    "espnet": Arm("ESPnet numel", "espnet_numel"),
    "odb": Arm("ODB (online-dynamic-batching)", "odb_loader"),
    "grouped_safe": Arm("HF group by length, safe size", "hf_grouped", {"size": "safe"}),
    "grouped_mean": Arm("HF group by length, mean size", "hf_grouped", {"size": "mean"}),
    "rebalance": Arm("HF batch rebalance, mean size", "hf_rebalance"),
    "plain_safe": Arm("DataLoader, safe size", "torch_plain", {"size": "safe"}),
    "plain_mean": Arm("DataLoader, mean size", "torch_plain", {"size": "mean"}),
    "axolotl": Arm("Axolotl multipack (packs)", "axolotl_multipack"),
    "trl": Arm("TRL packing, BFD (packs)", "trl_packing"),
    "grain": Arm("Grain first-fit (packs)", "grain_packing"),
}
"""By the name on the command line, in the order of the tables."""
