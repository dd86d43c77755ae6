"""What others left, read by the host: every way in, through the border."""
