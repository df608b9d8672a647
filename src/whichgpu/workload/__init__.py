"""What the user wants to run: a task on a model, lowered to operators, split by a layout."""
