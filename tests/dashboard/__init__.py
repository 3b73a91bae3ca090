"""The dashboard in a real browser; what its pages say is tested in tests/interface/test_dashboard.py."""
