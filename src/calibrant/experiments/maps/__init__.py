"""Pictures of what the networks of several runs do: pixel by pixel, and where they look."""
