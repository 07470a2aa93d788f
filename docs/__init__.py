"""The documentation: hand-written pages, and `docs.build`, which writes the generated ones."""
