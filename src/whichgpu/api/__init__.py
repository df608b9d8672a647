"""The public verbs, `verb(request, context) -> answer`; they connect the other packages, and every surface calls them."""
