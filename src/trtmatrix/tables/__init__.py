"""What users read of cells: the answer on a screen, every row as text or Markdown, the page, JSON, JUnit."""
