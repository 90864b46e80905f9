"""Rows as tables: the columns of models, and Arrow tables of them."""
