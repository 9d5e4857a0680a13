"""What every layer may use: errors, settings, source spans, data types."""
