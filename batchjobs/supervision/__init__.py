"""The dispatcher's side: replicas' lives, what ends them, and what happens next."""
