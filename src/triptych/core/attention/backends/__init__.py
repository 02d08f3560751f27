"""How attention is computed: the choice, and the kernels chosen from; variants say what."""
