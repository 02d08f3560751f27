"""Trained models in the browser (`triptych play`): a page for each model, on this machine alone.

`translation`, `image`, `music` and `language` compute what a page shows and need no gradio;
`pages/` has the layout of each page, and `app` the server.
"""
