"""What commands do that need a loader: each uses the public names of `holdfast` only."""
