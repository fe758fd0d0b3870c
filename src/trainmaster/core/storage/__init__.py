"""What storage decides: who may use a shared store now, and what a large store can carry."""
