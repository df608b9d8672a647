"""Requests, declared once: a TypedDict per verb whose fields carry how they are read, their help, unit and example.

Command-line flags, Python keywords, REST parameters and bodies, OpenAPI, web forms and the reference are made from these
declarations. A request is a plain dict of the fields that were given; `read` turns it into values, or says what is wrong with it.
"""
