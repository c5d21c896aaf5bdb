"""What every folder may use: registry, runtime, checkpoints, records, small tensor helpers. Imports no other folder."""
