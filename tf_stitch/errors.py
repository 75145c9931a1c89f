"""Exceptions and reason codes. Every message names the object, the rule and the remedy."""

from __future__ import annotations

import enum


class StitchError(Exception):
    """Base of all errors that tf_stitch raises on purpose; safe to show to a user as one line."""


class EnvironmentProblem(StitchError):
    """The machine or the installation lacks something: the wrong TensorFlow, no compiler."""


class UsageError(StitchError):
    """A mistake of the caller's: a path that is no SavedModel, an output that exists."""


class StrictError(StitchError):
    """Under TF_STITCH_STRICT=1: what would have been a fallback."""


class BuildError(StitchError):
    """A kernel did not compile, or not in time."""


class Reason(enum.Enum):
    """Why a node was not stitched. The value explains the code to a reader of `explain`."""

    UNSUPPORTED_OP = "not an op that tf_stitch generates code for"
    DTYPE = "a dtype that is not computed on"
    UNKNOWN_RANK = "the rank of an operand or result is not known"
    UNKNOWN_DIM = "a dim that cannot be computed from the dims of the cluster's inputs"
    DEVICE = "placed on another device"
    CYCLE = "joining its neighbours would make a cycle through other ops"
    CONTROL_EDGE = "joining its neighbours would break an order given by control edges"
    FRAME = "in another while-loop frame or branch than its neighbours"
    STATEFUL = "reads or writes state"
    FETCHED = "its name must survive, because it is fetched or fed"
    TOO_SMALL = "too little work beside it to be worth a kernel"
    EXCLUDED = "excluded by the configuration"
    NOT_PROFITABLE = "stitching it was estimated not to pay"
    SLOWER = "its kernel was measured to be slower than the nodes that it replaces"
    SCHEME = "its index mapping does not fit the one of its neighbours"
    BUILD_FAILED = "its kernel could not be built"
    INTERNAL = "an error inside tf_stitch; please report it"


class Unsupported(Exception):
    """Raised while a node is expanded or a cluster planned; always caught, and turned into a Rejection."""

    def __init__(self, reason: Reason, detail: str) -> None:
        super().__init__(f"{reason.name}: {detail}")
        self.reason = reason
        self.detail = detail
