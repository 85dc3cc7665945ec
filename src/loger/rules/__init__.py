"""Rules: what they are, how they are mined, and how they are said."""

from loger.rules.rule import (
    MAX_HOPS,
    Rule,
    RuleSet,
    candidates,
    make_rule,
    named_rules,
)
from loger.rules.wording import Wording, wording_of

__all__ = [
    "MAX_HOPS",
    "Rule",
    "RuleSet",
    "Wording",
    "candidates",
    "make_rule",
    "named_rules",
    "wording_of",
]
