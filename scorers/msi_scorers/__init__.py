"""Built-in scorers, registered through the same entry points as anyone's."""
