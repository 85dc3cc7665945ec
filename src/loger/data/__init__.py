"""Reading data sets in the formats people have, and splitting them without leaks."""
