"""Attacks on what stands outside of a cell, through the real command line and real containers."""
