"""One adapter a trainer. No code of theirs is here: their modules are imported and called."""
