"""What the numbers say: measures, noise floors, verdicts, expectations, controls, confirmation, and the record they read.

May import common and suite.
"""
