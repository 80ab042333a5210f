"""Strategies side by side: what each costs in padding and in diversity."""
