"""Where records and kept outputs lie, of cells and of the operators' tests: reads, writes, publishes them."""
