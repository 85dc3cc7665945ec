"""What encoders, the reasoner and baselines train with."""
