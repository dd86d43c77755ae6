"""What a person does about one failure: bisect it, make it small, report it."""
