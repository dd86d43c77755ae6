"""Runs a plan: tasks are queued, handed to workers (one start of the probe each), recorded, and judged.

It may import everything below it (``images`` and down) and knows nothing of Slurm or of commands. It offers
:func:`.perform.perform` for a whole run, :class:`.session.Session` for one question at a time,
:func:`.planned.plan_all` for what a run would do, and the :class:`.tasks.Executor` that others may supply.
"""
