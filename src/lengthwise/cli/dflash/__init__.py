"""``lengthwise dflash``: one file a command; what they do is in :mod:`lengthwise.dflash`."""
