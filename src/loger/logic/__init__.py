"""The logic model and how it is learned: read ``mln``, ``estep``, ``mstep``, then ``em``."""
