"""Takes trained models to where they are used, once the gate has promoted them."""
