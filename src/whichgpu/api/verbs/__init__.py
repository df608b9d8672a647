"""`verb(request, context) -> answer`: one function per command, asked alike by the command line, Python, REST and pages."""
