"""Tests against real registries on loopback: Debian's docker-registry, with and without logins and TLS."""
