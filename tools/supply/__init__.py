"""What this project stands on: which packages, under which licences, with which digests."""
