"""`python -m tf_stitch.cli`: the same as `tf-stitch`."""

from tf_stitch.cli import main

main()
