"""What a finished run is used for: search own images, export, explore, document. `python -m retrieval --help`."""
