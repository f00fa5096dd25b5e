"""Sphinx's settings. `make docs` builds; a warning is an error."""

from __future__ import annotations

import sys
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE / "_ext")]

import elegantrl  # noqa: E402

project = "ElegantRL"
copyright = "the authors of ElegantRL"
release = elegantrl.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.mathjax", "from_code"]

html_theme = "furo"
html_title = f"{project} {release}"
html_copy_source = False
exclude_patterns = ["_build"]
myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 3

autodoc_inherit_docstrings = False  # those of torch are no text of ours
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "show-inheritance": True}
default_role = "literal"  # docstrings mark code by single backquotes
# Only names of this library must be found: those of torch, numpy and Python are not linked, so nothing is downloaded.
nitpick_ignore_regex = [(r"py:.*", r"(?!elegantrl\.).*"), (r"py:.*", r"elegantrl\.(?!agents|envs|train).*")]
