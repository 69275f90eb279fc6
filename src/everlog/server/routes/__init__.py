"""The route table: what a route is, all of them, and the documents that follow from it."""
