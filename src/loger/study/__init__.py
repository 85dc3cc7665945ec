"""The user study (the paper's third measure of faithfulness): blind ranking of methods' paths.

A rater sees the paths of a user's history beside the paths that several methods show for their
recommendations, in shuffled order and without names, and ranks the methods by how well their
reasons fit the history. Answers are kept in SQLite; ``results`` gives average ranks, a Friedman
test and how far raters agree.
"""

from loger.study.store import Results, Study, Task, friedman, kendall_w, results
from loger.study.tasks import make_tasks

__all__ = ["Results", "Study", "Task", "friedman", "kendall_w", "make_tasks", "results"]
