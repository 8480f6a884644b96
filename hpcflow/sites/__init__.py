"""Clusters as files: what a site file may say, reading one, comparing it with the live cluster."""
