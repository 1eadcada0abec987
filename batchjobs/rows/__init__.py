"""A row on its way: rendered, tokenised and checked as a request; answered as a result."""
