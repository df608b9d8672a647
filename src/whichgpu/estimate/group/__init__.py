"""Groups of GPUs: how they are linked, what layouts they may run, what each step sends, and how long it then takes."""
