"""What several test modules share: contracts, beds, toys; nothing here is a test."""
