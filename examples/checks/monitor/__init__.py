"""Recurring checks of URLs and databases: results in a table, an e-mail on trouble and another when it is over."""
