"""The data that flows through the pipeline: types, graphs and bodies. Frozen; no pass edits in place."""
