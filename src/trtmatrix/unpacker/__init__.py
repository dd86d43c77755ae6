"""What lies in every pack as its script: any Python from 3.8 runs it, with its standard library alone."""
