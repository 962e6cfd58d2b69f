"""The files that `ai-prof init` writes, as they will stand; `.in` keeps tools from taking them for ours."""
