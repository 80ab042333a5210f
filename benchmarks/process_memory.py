"""What Linux says of a process's memory."""

from __future__ import annotations

from pathlib import Path


def memory(*keys, pid="self"):
    """Lines of the system's account of a process, such as ``VmRSS`` or ``RssAnon``; bytes.

    A process that has ended and that nobody has waited for has no such line, and no memory.

    Args:
        keys: names of the lines.
        pid: of the process; by default this one.
    """
    lines = Path(f"/proc/{pid}/status").read_text(encoding="ascii").splitlines()
    fields = dict(line.split(":", 1) for line in lines)
    return [int(fields.get(key, "0").split()[0]) * 1024 for key in keys]


def reset_peak():
    """Forget the peak of this process's resident memory; bytes that are resident now."""
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")
    return memory("VmRSS")[0]


def peak():
    """The most that was resident since :func:`reset_peak`, in bytes."""
    return memory("VmHWM")[0]
