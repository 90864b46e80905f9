"""Settings of the site that `nox -s docs` builds with Sphinx from these pages and the docstrings."""

from __future__ import annotations

from chainapi import __version__

project = "chainapi"
author = "The chainapi authors"
copyright = f"2026, {author}"  # noqa: A001 - the name is Sphinx's
release = version = __version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 3
html_theme = "furo"
html_title = f"chainapi {release}"
templates_path: list[str] = []
exclude_patterns = ["_build"]
nitpicky = False

default_role = "code"  # docstrings are read in editors too: plain backquotes
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_default_options = {"members": True, "undoc-members": False}
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True  # attributes are fields of their class, which autodoc lists again otherwise
