"""Training a drafter: the config, what an epoch consists of, the loop, its checkpoints."""
