"""Warnings that point at the user's line. A leaf: everything may import it."""

from __future__ import annotations

import os
import sys
import warnings

PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """A warning shown at the innermost line outside this package (and outside the import system)."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith((PACKAGE, "<frozen importlib")):
        frame = frame.f_back
    names = frame.f_globals
    registry = names.setdefault("__warningregistry__", {})
    file, module = frame.f_code.co_filename, names.get("__name__", "<unknown>")
    warnings.warn_explicit(message, category, file, frame.f_lineno, module, registry)
