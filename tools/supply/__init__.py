"""Dependencies of this project: packages, licences and digests."""
