"""What is compared, and the runs that this takes."""
