"""Clusters as files: what a site file may say, finding and reading one, comparing it with reality."""
