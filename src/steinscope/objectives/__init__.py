"""Ways to fit and to judge unnormalised models other than the learned Stein discrepancy."""
