"""What every stage speaks: errors, files and stores, progress, and the shower."""
