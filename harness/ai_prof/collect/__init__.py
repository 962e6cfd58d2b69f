"""Start the native library in a program."""
