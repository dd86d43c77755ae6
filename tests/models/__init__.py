"""Real exported models through the whole path, in containers."""
