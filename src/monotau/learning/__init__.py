"""The learner, the policies, collectors and the training loop."""
