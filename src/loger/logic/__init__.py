"""The Markov logic network: features of rules, probabilities, likelihoods, gradients."""
