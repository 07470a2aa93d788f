"""Tables and figures of SC."""
