"""Page of the toy in the browser."""

import gradio as gr


def layout(model, key):
    """Show how many numbers the model knows."""
    gr.Markdown(f"A motif of {model.vocabulary} numbers", elem_id=key)
