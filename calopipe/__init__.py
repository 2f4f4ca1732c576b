"""What every stage uses: errors, files and stores, progress, and the shower."""
