"""What executes runs: processes of this machine, or a Ray cluster."""
