"""A tokenizer that takes its time and tells in which process, so that it can be killed."""

import os
import time
from pathlib import Path


class SlowTokens:
    """Counts words; each call waits and notes in which process it ran.

    Args:
        folder: where a file named after each process is made.
        seconds: to wait for each text.
        at_most: texts, of all processes together, after which every call waits for ever; None for
            no such bound.
    """

    def __init__(self, folder, seconds, at_most=None):
        self.folder = str(folder)
        self.seconds = seconds
        self.at_most = at_most

    def __call__(self, text):
        (Path(self.folder) / str(os.getpid())).touch()
        time.sleep(self.seconds)
        if self.at_most is not None:
            self._count()
        return len(text.split())

    def _count(self):
        counter = Path(self.folder) / "texts"
        with counter.open("ab") as file:
            file.write(b".")
        while counter.stat().st_size > self.at_most:
            time.sleep(0.05)
