from lengthwise._version import __version__
