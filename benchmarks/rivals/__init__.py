"""Other trainers of DFlash drafters beside ours: the same weights, samples, steps and decoding."""
