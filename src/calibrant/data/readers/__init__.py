"""One reader per file; importing a file registers its layout."""
