"""A pipeline of targets and drafters on paper: throughput, bottleneck, and the best split."""
