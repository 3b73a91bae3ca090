"""The dashboard in a real browser; what its pages say is tested in tests/dashboard/test_dashboard.py."""
