"""What can be known to fail before the first pull: rules, the facts that they look at, what comes of both."""
