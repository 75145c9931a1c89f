"""Measurements of tf_stitch beside TensorFlow and XLA: `python -m bench --help`."""
