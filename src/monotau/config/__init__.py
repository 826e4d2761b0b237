"""Settings: their schema, presets, profiles, and how they are parsed and resolved."""
