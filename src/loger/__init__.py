"""Recommendations with reasons that are true.

``loger`` learns from interactions and a knowledge graph, recommends items, and shows the
paths and logical rules that really produced each score.
"""

from loger.version import __version__ as __version__
