"""What pages show, read from the store in bounded parts."""
