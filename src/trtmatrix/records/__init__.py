"""Where records and kept outputs lie: reads, writes and publishes them. May import judge and what judge may."""
