"""Choose where a run goes, by the expected time and cost in each partition."""
