"""Parts of pages as template values: cards, the answers of recommend and plan, and the tables of one subject."""
