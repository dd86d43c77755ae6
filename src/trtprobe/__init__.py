"""What is mounted into every image: runs cells, measures, leaves a record for each. Python 3.8."""

SCHEMA = 1
