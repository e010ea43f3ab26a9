"""The docs site: `make site` copies the repository's pages here, as they lie there, and runs Sphinx."""

import os
import sys

sys.path.insert(0, os.environ["TERAPAGE_PYTHON"])

project = "Terapage"
author = "The Terapage maintainers"
copyright = author  # noqa: A001: Sphinx's name
release = os.environ["TERAPAGE_VERSION"]

extensions = ["myst_parser", "sphinx.ext.autodoc"]
myst_heading_anchors = 4
myst_enable_extensions = ["colon_fence"]
exclude_patterns = ["docs/README.md"]
suppress_warnings = ["myst.header", "misc.highlighting_failure"]

# What a page does not call Python is mostly a shell's.
highlight_language = "none"

html_theme = "furo"
html_title = f"Terapage {release}"
html_copy_source = False
html_show_sourcelink = False

autodoc_typehints = "signature"
autodoc_member_order = "bysource"
