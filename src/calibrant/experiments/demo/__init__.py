"""The demonstration, and the study of what the papers claim on its data."""
