"""What-ifs of growth: the curve, hit rates and required capacity with more of what a log has."""
