"""A tokenizer that takes its time and tells in which process, so that it can be killed."""

import os
import time
from pathlib import Path


class SlowTokens:
    """Counts words; each call waits and notes in which process it ran.

    Args:
        folder: where a file named after each process is made.
        seconds: to wait for each text.
    """

    def __init__(self, folder, seconds):
        self.folder = str(folder)
        self.seconds = seconds

    def __call__(self, text):
        (Path(self.folder) / str(os.getpid())).touch()
        time.sleep(self.seconds)
        return len(text.split())
