"""The learner, policies, collectors, evaluation and the training loop."""
