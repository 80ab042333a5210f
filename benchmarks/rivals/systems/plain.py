"""The optimiser that all trainers get in the comparison at equal settings."""

from __future__ import annotations

import torch

from lengthwise.dflash.schedule import ScheduleConfig
from rivals.recipes import COMMON_RATE


class Plain:
    """AdamW, the gradient's norm at most 1, our schedule."""

    def __init__(self, parameters, total_steps):
        """Nothing is done yet."""
        self.parameters = [p for p in parameters if p.requires_grad]
        self.optimizer = torch.optim.AdamW(self.parameters, betas=(0.9, 0.95), weight_decay=0.0)
        self.total_steps, self.num_steps = total_steps, 0

    def step(self):
        """Change the weights; gradients are gone afterwards."""
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        factor = ScheduleConfig().factor(self.num_steps, self.total_steps)
        for group in self.optimizer.param_groups:
            group["lr"] = COMMON_RATE * factor
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.num_steps += 1
