"""How a model is learned: read ``estep``, ``mstep`` and ``em`` in that order, then ``fit``."""
