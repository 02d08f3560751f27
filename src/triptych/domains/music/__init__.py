"""Music: performances and chorales as tokens, learnt, scored, sampled and played."""
