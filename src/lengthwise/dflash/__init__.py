"""DFlash: block-diffusion drafters for speculative decoding, from training data to export."""
