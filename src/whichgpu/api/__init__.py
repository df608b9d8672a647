"""The public functions ("verbs"), `verb(request, context) -> answer`; command line, Python, web pages and REST all call them."""
