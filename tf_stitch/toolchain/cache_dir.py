"""Which directory the kernel cache lives in, and whether it may be trusted.

What is in there is loaded into the process and run: so it must belong to the user (or to root), and nobody
else may write to it.
"""

from __future__ import annotations

import os
import shutil
import stat
from pathlib import Path

import platformdirs

PRIVATE = 0o700


def configured_root() -> Path:
    """TF_STITCH_CACHE_DIR, or the user's cache directory. Need not exist."""
    configured = os.environ.get("TF_STITCH_CACHE_DIR")
    return Path(configured or platformdirs.user_cache_dir("tf_stitch"))


def distrust(root: Path) -> str | None:
    """Makes `root` if it is missing, and says what speaks against using it; None when nothing does."""
    if not root.is_absolute():
        # Also what platformdirs gives for a user without a home: "~/.cache".
        return "it is not an absolute path"
    try:
        root.mkdir(mode=PRIVATE, parents=True, exist_ok=True)
        found = root.stat()
        if found.st_uid not in (os.geteuid(), 0):
            return f"it belongs to another user (uid {found.st_uid}), who could put code into it"
        if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            if any(root.iterdir()):
                return f"other users can write to it; `chmod 700 {root}` if what is in it can be trusted"
            root.chmod(PRIVATE)
        next(root.iterdir(), None)  # whether it may be read
    except FileExistsError:
        return "it is not a directory"
    except OSError as error:
        return error.strerror or str(error)
    return None


def remove_tree(directory: Path) -> None:
    """Removes a directory and what is in it, as far as that goes. Never follows a link."""
    shutil.rmtree(directory, ignore_errors=True)
