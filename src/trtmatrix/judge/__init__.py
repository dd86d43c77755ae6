"""What the numbers say: measures, floors, verdicts, expectations, controls, and the record they read."""
