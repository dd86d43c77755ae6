"""What the pages are made of: their shell and style, and the parts that several of them show."""
