"""From the project and what was asked of it to a plan: what is here, which cells, what is stale, which order.

It may import everything below it (``api`` and down). It offers :func:`.context.open_context`, which reads a
project; :func:`.survey.take_survey`, which finds GPUs, engine, records, and plans; :mod:`.order`, why a
cell is run, and in which order; and matrix.lock's text (:mod:`.lockfile`).
"""
