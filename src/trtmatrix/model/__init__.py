"""A model of the user's own as a repro: its cases, acceptance, differences, and the first layer that goes wrong."""
