"""Sites: reading them, recognizing them, placing runs on them."""
