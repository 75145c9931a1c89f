"""Settings of every test process. They must stand before TensorFlow is imported."""

import os
import signal

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
os.environ["TF_STITCH_STRICT"] = "1"  # a fallback is a failure; tests of fallbacks use `monkeypatch.delenv`
os.environ["TF_STITCH_VERIFY"] = "1"  # every plan and kernel that a test makes is checked

# An interrupt is ignored by what a shell starts in the background, and by all that this starts.
signal.signal(signal.SIGINT, signal.default_int_handler)
