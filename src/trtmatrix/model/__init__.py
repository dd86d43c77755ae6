"""A model of the user's own as a repro: cases, acceptance, and the first layer that goes wrong."""
