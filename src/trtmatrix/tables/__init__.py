"""The tables in every form: text, Markdown, page, plots, JSON. Renderers return strings and decide nothing."""
