"""An error of ours must not cost the user the model: it is logged, and part of a graph is left as it was."""

from __future__ import annotations

import logging

from tf_stitch.config import strict

_LOG = logging.getLogger("tf_stitch")


def excused(graph: str, error: Exception) -> str:
    """Logs an error of ours and says what it was, for a Rejection; under TF_STITCH_STRICT=1 raises it."""
    if strict():
        raise error
    _LOG.error("part of graph %r is left as it was, because of an error in tf_stitch", graph, exc_info=error)
    return f"{type(error).__name__}: {error}"
