"""Table of every kind of error with its HTTP status, for the error catalogue of the OpenAPI document; tools/digests writes it."""

from __future__ import annotations

import csv
import io

from reference.errors import kinds
from whichgpu.surface.web.rest.error_catalogue import TABLE

STATUSES = {1: 422, 2: 400, 3: 500}  # HTTP status by exit code.


def text() -> str:
    """The table as CSV."""
    table = io.StringIO()
    writer = csv.writer(table, lineterminator="\n")
    writer.writerow(("kind", "status", "messages"))
    writer.writerows((one.name, one.status or STATUSES[one.exit_code], " ".join(one.ids)) for one in kinds())
    return table.getvalue()


def write() -> None:
    """Write the table beside the code that reads it."""
    TABLE.write_text(text(), encoding="utf-8")
