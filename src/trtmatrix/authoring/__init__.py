"""What authors of repros build with: graphs as torch exports them, torch's draws, references."""
