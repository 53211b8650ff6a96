"""The documentation site: pages of `docs/` and of the packages, reference pages generated from the code, one build."""
