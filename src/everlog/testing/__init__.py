"""Suites and builders for tests of your own stores, views and programs."""
