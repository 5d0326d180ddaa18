"""What is measured on trained models and how it is drawn."""
