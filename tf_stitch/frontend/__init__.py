"""Where TensorFlow is known: graphs in, stitched graphs out, and the ways a user's model reaches us."""
