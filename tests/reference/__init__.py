"""Slow, obvious versions written from the papers; the outside oracle of the tests, never imported by src."""
