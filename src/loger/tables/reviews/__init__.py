"""Knowledge graphs from raw reviews: Amazon's layouts, and aspects in texts."""
