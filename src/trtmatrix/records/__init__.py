"""Where records and kept outputs lie: reads, writes and publishes them. It may import the judge's types."""
