"""Parts of the command lines that start engines: settings of one kind each."""
