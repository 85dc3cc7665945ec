"""Rules: what they are, how they are mined, and how they are said."""

from loger.rules.rule import (
    MAX_HOPS,
    Rule,
    RuleSet,
    candidates,
    make_rule,
    named_rules,
    to_you,
    verb_of,
)

__all__ = [
    "MAX_HOPS",
    "Rule",
    "RuleSet",
    "candidates",
    "make_rule",
    "named_rules",
    "to_you",
    "verb_of",
]
