"""Translation: any language pair from parallel text, one encoder and one decoder."""
