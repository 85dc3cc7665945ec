"""Building data sets: from raw reviews and catalogues, or from the tables of any shop."""
