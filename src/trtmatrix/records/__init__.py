"""Where records and kept outputs lie: reads, writes and publishes them."""
