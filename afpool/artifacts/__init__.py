"""Where results too large for a model's context live: stores of five verbs, scope first."""
