"""lengthwise beside other libraries' batching: same lengths, same limits, a process each."""
