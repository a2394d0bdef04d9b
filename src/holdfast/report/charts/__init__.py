"""Charts as geometry: what is where, in the units of an SVG's viewBox. The templates draw it, the style colours it."""
