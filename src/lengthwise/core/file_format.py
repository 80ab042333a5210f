"""Names and versions of what lengthwise writes, and when something that was read is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lengthwise.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class FileFormat:
    """A kind of file, or of saved state.

    Attributes:
        name: what stands in it under ``format``.
        version: what stands under ``version``; it grows when older readers would misunderstand.
    """

    name: str
    version: int = 1

    def stamp(self) -> dict[str, Any]:
        """What a writer puts first."""
        return {"format": self.name, "version": self.version}

    def check(self, values: Mapping[str, Any], where: object) -> None:
        """Refuse what is of another kind, or of a version that is not known yet.

        Files of these kinds were written without a name at first, and some are written by hand. So
        what has neither name nor version is read as version 1.

        Args:
            values: what the file holds.
            where: the file, for the message.

        Raises:
            DataError: another format, or a version that this release does not read.
        """
        name, version = values.get("format", self.name), values.get("version", 1)
        if str(name) != self.name:
            raise DataError(f"{where} is a file of format {str(name)!r}, not {self.name!r}")
        if not str(version).isdecimal() or not 1 <= int(version) <= self.version:
            raise DataError(
                f"{where} is a {self.name} of version {version}; this release reads up to version "
                f"{self.version}. Use the release that wrote it, or a newer one"
            )


HISTOGRAM = FileFormat("lengthwise histogram")
LENGTHS = FileFormat("lengthwise lengths")
BATCHING = FileFormat("lengthwise batching config")
PLAN = FileFormat("lengthwise plan")
COMPARISON = FileFormat("lengthwise comparison")
SAMPLER_STATE = FileFormat("lengthwise sampler state")
STREAM_STATE = FileFormat("lengthwise stream state")
EVALUATION = FileFormat("lengthwise drafter evaluation")
SHARD = FileFormat("lengthwise prepared samples")
CHECKPOINT = FileFormat("lengthwise training checkpoint")
TRAIN_CONFIG = FileFormat("lengthwise training config")
