"""What an archive's repro.py holds beside the repro and the probe; inlined into it as text. Python 3.8."""
