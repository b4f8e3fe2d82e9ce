"""Views that are rows with columns and details: one description, from which text, HTML and the page's payload are made."""
