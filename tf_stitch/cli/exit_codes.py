"""What the exit status of `tf-stitch` means."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Self


class Exit(enum.IntEnum):
    """The exit status of a command. The meaning is what `--help` says."""

    meaning: str

    def __new__(cls, code: int, meaning: str) -> Self:
        member = int.__new__(cls, code)
        member._value_ = code
        member.meaning = meaning
        return member

    OK = 0, "all went well"
    FAILURE = 1, "it failed, or was interrupted"
    USAGE = 2, "wrong arguments, or a path that is no SavedModel"
    NOTHING = 3, "nothing to stitch, or stitched already"
    MISMATCH = 4, "the outputs of two models differ"
    ENVIRONMENT = 5, "the machine or the installation lacks something"


EPILOG = "\b\nExit status:\n" + "\n".join(f"  {code.value}  {code.meaning}" for code in Exit)
