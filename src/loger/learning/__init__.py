"""How a model is learned: the E-step, the M-step, EM, and the order of a fit."""
