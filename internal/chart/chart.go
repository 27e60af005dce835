// Package chart draws lines, bars, intervals and flame graphs as SVG that is
// readable without scripts, and lines as PNG. It knows nothing of what the
// figures mean. All colours are CSS custom properties with a fallback, so that
// a page decides on dark and light.
package chart
