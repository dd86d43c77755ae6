"""Where records and kept outputs lie: reads, writes and publishes them. It may import the judge's types.

:mod:`.store` has those of cells, :mod:`.operators` those of the operators' tests.
"""
