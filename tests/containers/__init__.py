"""Tests in a real engine: the real command line, launcher and probe, in an image of our own."""
