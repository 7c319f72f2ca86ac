"""Points and shapes on the earth: degrees, distances and cells; pure arithmetic that no module needs at import."""
