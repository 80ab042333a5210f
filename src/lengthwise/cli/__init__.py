"""The command line: one small file a command; nothing imports this package."""
