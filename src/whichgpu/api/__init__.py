"""The public verbs: `verb(request, context) -> answer`. Wiring only; every surface calls the same functions."""
