"""How a model learns: read ``em``, ``estep`` and ``mstep`` with section 3.2 of the paper,
then ``fit``."""
