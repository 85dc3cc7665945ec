"""How good, how true: the recommender protocol, metrics, comparison, faithfulness, report."""
