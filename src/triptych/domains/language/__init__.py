"""Text in one language: masked and next tokens, and tasks on labelled text."""
