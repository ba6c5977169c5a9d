"""Settings: their model, where they come from, and the page that documents them."""
