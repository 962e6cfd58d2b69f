"""ai-prof: why a GPU idles, and whether a change made it slower."""
