"""The probe, run as the host runs it, under every Python that images ship."""
