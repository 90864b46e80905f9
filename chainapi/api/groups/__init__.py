"""The routes of both services as methods, in groups of what they tell about."""
