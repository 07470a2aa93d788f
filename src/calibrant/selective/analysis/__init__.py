"""The analyses of the paper SC: `rankings` by several scores, `logits` behind a score."""
