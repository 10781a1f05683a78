"""The report of `tilewright explain`: where a model's time goes, as a table and as one HTML page."""
