"""The summary of a run for people: text, markdown, and one page of HTML with pictures."""
