"""Events of any field, showers or pairs of frames: their files, their splits, and what is done about bad ones."""
