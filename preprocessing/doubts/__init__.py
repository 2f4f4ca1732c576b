"""What may be wrong with showers that can be read: units, scale, labels, and what a cut does to them."""
