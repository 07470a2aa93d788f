"""What writes the generated pages of docs/ and builds the site: ``./dev docs``."""
