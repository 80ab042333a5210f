"""A file that remembers which of its bytes were read."""

import io


class CountingFile(io.FileIO):
    """A plain file whose reads are noted in ``ranges`` as [first, last + 1)."""

    def __init__(self, path, ranges):
        super().__init__(path, "rb")
        self._ranges = ranges

    def _note(self, data_length):
        end = self.tell()
        if data_length:
            self._ranges.append((end - data_length, end))

    def read(self, size=-1):
        data = super().read(size)
        self._note(len(data))
        return data

    def readall(self):
        data = super().readall()
        self._note(len(data))
        return data

    def readinto(self, buffer):
        count = super().readinto(buffer)
        self._note(count)
        return count


def touched(ranges, first, last):
    """How many bytes of [first, last) were read."""
    return len({byte for lo, hi in ranges for byte in range(max(lo, first), min(hi, last))})
