"""Tables and figures of MbLS."""
