"""What tests stand on: servers, clusters, databases, an owned clock, sessions that wait."""
