"""The tables as text, Markdown, page, plots and JSON: renderers return strings and decide nothing."""
